from __future__ import annotations

import pytest

from octavo.diagnosis.token_kinds import KINDS, TokenKinds, is_punctuation
from octavo.graph import Encoder


@pytest.mark.parametrize(("token", "expected"), [
    (".", True), ("##,", True), ("Ġ!", True), ("▁?", True), ("...", True), ("$", True),
    ("a", False), ("##a", False), ("[CLS]", False), ("", False), ("##", False), ("a.", False),
])  # fmt: skip
def test_punctuation(token: str, expected: bool) -> None:
    assert is_punctuation(token) is expected


def test_kinds_of_a_sentence(plain: Encoder) -> None:
    _, batch = next(iter(plain.batches(["ab, c."], 1)))
    kinds = [KINDS[kind] for kind in TokenKinds(plain).of(batch["input_ids"])[0].tolist()]
    assert kinds == ["class", "word", "word", "punctuation", "word", "punctuation", "separator"]
