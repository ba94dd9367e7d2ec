from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from octavo.diagnosis.chapters.attention import AttentionTally, PatternKeeper, check_attention
from octavo.diagnosis.token_kinds import TokenKinds
from octavo.diagnosis.watch import Shown, Watch
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
    tally.see(Shown(site=PROBS, x=x, batch=batch, indices=[0]))
    heads = tally.heads({})
    assert [head.no_op for head in heads] == [False, True, False, False]
    assert heads[0].special == pytest.approx(2 / 8)
    assert heads[1].shares == pytest.approx({"separator": 0, "class": 1, "punctuation": 0, "word": 0})


def test_uniform_attention_over_a_short_text_is_no_no_op(plain: Encoder) -> None:
    tally = AttentionTally(plain, TokenKinds(plain))
    _, batch = next(iter(plain.batches(["a"], 1)))  # two of three tokens are special
    tally.see(Shown(site=PROBS, x=torch.full((1, 4, 3, 3), 1 / 3), batch=batch, indices=[0]))
    assert not any(head.no_op for head in tally.heads({}))


def test_patterns_queries_and_keys_of_the_chosen_text(plain: Encoder) -> None:
    keeper = PatternKeeper()
    _, batch = next(iter(plain.batches(["who goes there"], 1)))
    Watch(plain).run(batch, [0], [keeper.see])
    length = batch["input_ids"].shape[1]
    assert keeper.patterns[0].shape == (4, length, length)
    assert keeper.queries[1].shape == keeper.keys[1].shape == (4, length, 8)
    torch.testing.assert_close(keeper.patterns[0].sum(-1), torch.ones(4, length))
    scores = keeper.queries[0] @ keeper.keys[0].transpose(-1, -2) / 8**0.5
    torch.testing.assert_close(scores.softmax(-1), keeper.patterns[0], rtol=1e-4, atol=1e-5)
