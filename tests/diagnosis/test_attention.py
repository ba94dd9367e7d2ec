from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from octavo.diagnosis.attention import AttentionTally, check_attention
from octavo.diagnosis.pull import by_head
from octavo.diagnosis.tokens import TokenKinds
from octavo.diagnosis.watch import Watcher
from octavo.errors import ModelError
from octavo.graph import Encoder, Site

PROBS = Site(name="layers.0.attention_probs", role="attention_probs", kind="activation",
             shape=("batch", 4, "length", "length"), targets=("p",))  # fmt: skip


def test_a_graph_without_probabilities_is_refused_with_the_remedy() -> None:
    fused = cast(Any, SimpleNamespace(name="fused", activation_sites=()))
    with pytest.raises(
        ModelError, match=r"fused has no attention probabilities in its graph .* --no-attention"
    ):
        check_attention(fused)


def test_shares_add_up_and_a_head_on_the_class_token_is_a_no_op(plain: Encoder) -> None:
    tally = AttentionTally(plain, TokenKinds(plain))
    _, batch = next(iter(plain.batches(["abcdef"], 1)))  # eight tokens
    x = torch.full((1, 4, 8, 8), 1 / 8)
    x[0, 1] = 0
    x[0, 1, :, 0] = 1.0  # head 1 looks at [CLS] only
    tally.see(PROBS, x, batch, [0])
    heads = tally.heads({})
    assert [head.no_op for head in heads] == [False, True, False, False]
    assert heads[0].special == pytest.approx(2 / 8)
    assert heads[1].shares == pytest.approx({"separator": 0, "class": 1, "punctuation": 0, "word": 0})


def test_uniform_attention_over_a_short_text_is_no_no_op(plain: Encoder) -> None:
    tally = AttentionTally(plain, TokenKinds(plain))
    _, batch = next(iter(plain.batches(["a"], 1)))  # two of three tokens are special
    tally.see(PROBS, torch.full((1, 4, 3, 3), 1 / 3), batch, [0])
    assert not any(head.no_op for head in tally.heads({}))


def test_the_pull_by_key_and_by_input_dimension_is_the_same_number(plain: Encoder, texts: list[str]) -> None:
    tally = AttentionTally(plain, TokenKinds(plain))
    watcher = Watcher(plain)
    for places, batch in plain.batches(texts, 4, pad=False):
        watcher.show(batch, places, [tally])
    pull = tally._pull
    assert sorted(pull._by_key) == sorted(pull._by_input) == [0, 1]
    for layer in (0, 1):
        torch.testing.assert_close(
            pull._by_key[layer].sum(-1), pull._by_input[layer].sum(-1), rtol=1e-3, atol=1e-5
        )


def test_the_pull_equals_the_difference_of_scores(plain: Encoder) -> None:
    """The oracle: mean scores on special keys less mean scores on the others, from the graph's own scores."""
    seen: dict[str, torch.Tensor] = {}

    class Scores:
        def see(self, site: Site, x: torch.Tensor, *_: Any) -> None:
            if site.name == "layers.1.attention_scores":
                seen["scores"] = x.clone()

    tally = AttentionTally(plain, TokenKinds(plain))
    _, batch = next(iter(plain.batches(["who goes there"], 1)))
    Watcher(plain).show(batch, [0], [tally, Scores()])
    scores = seen["scores"][0]
    special = torch.tensor([0, scores.shape[-1] - 1])
    others = torch.arange(1, scores.shape[-1] - 1)
    expected = scores[..., special].mean((-1, -2)) - scores[..., others].mean((-1, -2))
    # the site may stand before or after the division by the root of a head's width
    ratio = tally._pull._by_key[1].sum(-1) / expected.double()
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio), rtol=1e-3, atol=1e-4)
    assert float(ratio[0]) == pytest.approx(1, rel=1e-3) or float(ratio[0]) == pytest.approx(8**0.5, rel=1e-3)


def test_heads_are_split_from_either_layout() -> None:
    flat = torch.randn(2, 5, 12)
    split = by_head(flat, 3, 5)
    assert split is not None and split.shape == (2, 3, 5, 4)
    assert torch.equal(split[1, 2, 4], flat[1, 4, 8:12])
    assert by_head(split.contiguous(), 3, 5) is not None
    assert by_head(flat, 5, 5) is None
