from __future__ import annotations

import pytest
import torch

from octavo.diagnosis.moments import Moments
from octavo.diagnosis.tokens import KINDS, TokenKinds, TokenTally, is_punctuation
from octavo.graph import Encoder, Site

SITE = Site(
    name="layers.0.ffn_output",
    role="ffn_output",
    kind="activation",
    shape=("batch", "length", 2),
    targets=("x",),
)


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


def test_coincidence_is_a_number(plain: Encoder) -> None:
    kinds = TokenKinds(plain)
    _, batch = next(iter(plain.batches(["ab, c."], 1)))  # seven tokens, four of them no words
    x = torch.zeros(1, 7, 2)
    x[0, 0, 1] = x[0, 1, 1] = x[0, 6, 0] = 10.0
    moments = {SITE.name: Moments(count=1, mean=0.0, m2=1.0)}
    tally = TokenTally(kinds, moments)
    tally.see(SITE, x, batch, [0])
    found = tally.role("ffn_output", [SITE.name])
    assert found.outliers == {"separator": 1, "class": 1, "punctuation": 0, "word": 1}
    assert found.structural == pytest.approx(2 / 3)
    assert found.expected == pytest.approx(4 / 7)
    assert found.lift == pytest.approx((2 / 3) / (4 / 7))
    assert {(c.token, c.outliers, c.occurrences) for c in found.carriers} == {
        ("[CLS]", 1, 1),
        ("[SEP]", 1, 1),
        ("a", 1, 1),
    }


def test_without_outliers_there_is_no_coincidence(plain: Encoder) -> None:
    _, batch = next(iter(plain.batches(["ab"], 1)))
    tally = TokenTally(TokenKinds(plain), {SITE.name: Moments(count=1, mean=0.0, m2=1.0)})
    tally.see(SITE, torch.zeros(1, 4, 2), batch, [0])
    found = tally.site(SITE.name)
    assert (found.structural, found.lift, found.carriers) == (None, None, ())
