from __future__ import annotations

import pytest

from octavo.diagnosis.chosen_text import choose_text
from octavo.diagnosis.token_kinds import TokenKinds
from octavo.errors import DataError
from octavo.graph import Encoder


def test_the_first_long_text_is_chosen(plain: Encoder) -> None:
    text = choose_text(plain, ["no", "abcdefgh", "abcdefghi"], TokenKinds(plain))
    assert text.index == 1
    assert text.tokens[:3] == ["[CLS]", "a", "##b"]
    assert text.kinds[0] == "class" and text.kinds[-1] == "separator"
    assert text.batch["input_ids"].shape == (1, 10)


def test_a_long_text_is_cut_and_says_so(plain: Encoder) -> None:
    text = choose_text(plain, ["word " * 60], TokenKinds(plain))
    assert len(text.tokens) <= 64
    assert text.tokens[-1] == "[SEP]"


def test_texts_too_short_for_token_figures(plain: Encoder) -> None:
    with pytest.raises(DataError, match=r"the longest text has 3 tokens .* at least 4 tokens"):
        choose_text(plain, ["a", "b"], TokenKinds(plain))
    with pytest.raises(DataError, match="text 2 has 3 tokens"):
        choose_text(plain, ["abcdef", "b"], TokenKinds(plain), 2)


def test_a_text_that_is_not_there(plain: Encoder) -> None:
    with pytest.raises(DataError, match="text 3 was chosen for the token figures; there are 2"):
        choose_text(plain, ["abcdef", "b"], TokenKinds(plain), 3)
