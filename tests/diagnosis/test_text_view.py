from __future__ import annotations

import pytest
import torch

from octavo.diagnosis.text_view import look_at, ranges
from octavo.diagnosis.tokens import TokenKinds
from octavo.errors import DataError
from octavo.graph import Encoder


def test_the_first_long_text_is_chosen(plain: Encoder) -> None:
    view = look_at(plain, ["no", "abcdefgh", "abcdefghi"], TokenKinds(plain), None)
    assert view.place == 1
    assert view.tokens[:3] == ["[CLS]", "a", "##b"]
    assert view.kinds[0] == "class" and view.kinds[-1] == "separator"
    assert {name: tuple(x.shape) for name, x in view.values.items()} == {
        f"layers.{layer}.{role}": (10, 32) for layer in (0, 1) for role in ("ffn_input", "ffn_output")
    }
    assert view.patterns[0].shape == (4, 10, 10)
    assert view.queries[1].shape == view.keys[1].shape == (4, 10, 8)
    torch.testing.assert_close(view.patterns[0].sum(-1), torch.ones(4, 10))


def test_queries_and_keys_make_the_pattern(plain: Encoder) -> None:
    view = look_at(plain, ["who goes there"], TokenKinds(plain), 1)
    scores = view.queries[0] @ view.keys[0].transpose(-1, -2) / 8**0.5
    torch.testing.assert_close(scores.softmax(-1), view.patterns[0], rtol=1e-4, atol=1e-5)


def test_a_long_text_is_cut_and_says_so(plain: Encoder) -> None:
    view = look_at(plain, ["word " * 60], TokenKinds(plain), None)
    assert len(view.tokens) <= 64
    assert view.tokens[-1] == "[SEP]"


def test_texts_too_short_for_token_figures(plain: Encoder) -> None:
    with pytest.raises(DataError, match=r"the longest text has 3 tokens .* at least 4 tokens"):
        look_at(plain, ["a", "b"], TokenKinds(plain), None)
    with pytest.raises(DataError, match="text 2 has 3 tokens"):
        look_at(plain, ["abcdef", "b"], TokenKinds(plain), 2)


def test_a_text_that_is_not_there(plain: Encoder) -> None:
    with pytest.raises(DataError, match="text 3 was chosen for the token figures; there are 2"):
        look_at(plain, ["abcdef", "b"], TokenKinds(plain), 3)


def test_ranges_by_token() -> None:
    assert ranges(torch.tensor([[1.0, -2.0], [3.0, 5.0]])) == ([-2.0, 3.0], [1.0, 5.0])
