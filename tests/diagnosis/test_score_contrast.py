from __future__ import annotations

import pytest
import torch

from octavo.diagnosis.score_contrast import ScoreContrast, by_head
from octavo.diagnosis.token_kinds import TokenKinds
from octavo.diagnosis.watch import Shown, Watch
from octavo.graph import Encoder

HEADS = {0: 4, 1: 4}


def test_the_contrast_by_key_and_by_input_dimension_is_the_same_number(
    plain: Encoder, texts: list[str]
) -> None:
    contrast = ScoreContrast(plain, TokenKinds(plain), HEADS)
    watch = Watch(plain)
    for indices, batch in plain.batches(texts, 4, pad=False):
        watch.run(batch, indices, [contrast.see])
    assert sorted(contrast._by_key) == sorted(contrast._by_input) == [0, 1]
    for layer in (0, 1):
        by_key, by_input = contrast._by_key[layer].sum(-1), contrast._by_input[layer].sum(-1)
        torch.testing.assert_close(by_key, by_input, rtol=1e-3, atol=1e-5)


def test_the_contrast_equals_the_difference_of_scores(plain: Encoder) -> None:
    """The oracle: mean scores on special keys less mean scores on the others, from the graph's own scores."""
    seen: dict[str, torch.Tensor] = {}

    def see(shown: Shown) -> None:
        if shown.site.name == "layers.1.attention_scores":
            seen["scores"] = shown.x.clone()

    contrast = ScoreContrast(plain, TokenKinds(plain), HEADS)
    _, batch = next(iter(plain.batches(["who goes there"], 1)))
    Watch(plain).run(batch, [0], [contrast.see, see])
    scores = seen["scores"][0]
    special = torch.tensor([0, scores.shape[-1] - 1])
    others = torch.arange(1, scores.shape[-1] - 1)
    expected = scores[..., special].mean((-1, -2)) - scores[..., others].mean((-1, -2))
    # the site may stand before or after the division by the root of a head's width
    ratio = contrast._by_key[1].sum(-1) / expected.double()
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio), rtol=1e-3, atol=1e-4)
    assert float(ratio[0]) == pytest.approx(1, rel=1e-3) or float(ratio[0]) == pytest.approx(8**0.5, rel=1e-3)


def test_heads_are_split_from_either_layout() -> None:
    flat = torch.randn(2, 5, 12)
    split = by_head(flat, 3, 5)
    assert split is not None and split.shape == (2, 3, 5, 4)
    assert torch.equal(split[1, 2, 4], flat[1, 4, 8:12])
    assert by_head(split.contiguous(), 3, 5) is not None
    assert by_head(flat, 5, 5) is None
