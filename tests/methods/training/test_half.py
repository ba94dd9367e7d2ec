from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from octavo.methods import load
from octavo.methods.training import half
from octavo.numerics.half_linear import half_linear


def test_a_graph_in_half_shares_its_parameters_and_answers_the_same_without_gradients(
    tiny_bert_folder: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = load(str(tiny_bert_folder("BertModel")))
    monkeypatch.setattr(half, "multiplies_half", lambda: True)
    module = half.in_half(encoder.graph)
    assert [node for node in module.graph.nodes if node.target is half_linear]
    assert not [node for node in encoder.graph.graph.nodes if node.target is half_linear]
    assert {id(p) for p in module.parameters()} == {id(p) for p in encoder.graph.parameters()}
    inputs = encoder.arguments(next(encoder.batches(["one text", "another"]))[1])
    with torch.no_grad():
        for one, other in zip(module(*inputs), encoder.graph(*inputs), strict=True):
            assert torch.equal(one, other)
    monkeypatch.setattr(half, "multiplies_half", lambda: False)
    assert half.in_half(encoder.graph) is encoder.graph
