from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import fx

from octavo.graph import Encoder
from octavo.graph.capture.source import make_encoder
from octavo.runtime.backends.onnxruntime import ONNXRUNTIME
from octavo.runtime.translate.context import Translation
from octavo.runtime.translate.masks import Padding, light_masks, prove
from octavo.runtime.translate.onnx_graph import OnnxGraph
from tests.graph import families


def test_the_padding_mask_of_bert_becomes_one_choice(tiny_encoder: Encoder) -> None:
    graph = OnnxGraph(21)
    found = light_masks(Translation(tiny_encoder.graph, graph))
    assert len(found) == 1
    assert [node.op_type for node in graph.nodes] == ["Unsqueeze", "Cast", "Where"]


def test_a_mask_that_is_not_plain_padding_is_left_alone(tiny_encoder: Encoder) -> None:
    module = torch.fx.GraphModule(tiny_encoder.graph, tiny_encoder.graph.graph.__deepcopy__({}))
    where = next(node for node in module.graph.nodes if "where" in node.name)
    with module.graph.inserting_after(where):
        tilted = module.graph.call_function(torch.ops.aten.tril.default, (where,))
    tilted.meta = dict(where.meta)
    where.replace_all_uses_with(tilted, delete_user_cb=lambda user: user is not tilted)
    assert not light_masks(Translation(module, OnnxGraph(21)))


# -- a window of any width, at any length --------------------------------------------------------------------

WINDOWS = (8, 32, 128)


def modernbert(window: int) -> Encoder:
    changes = {"local_attention": window, "max_position_embeddings": 300, "initializer_range": 0.2}
    return make_encoder("modernbert", families.network("modernbert", "encoder", **changes), None, "encoder")


@pytest.mark.parametrize("window", WINDOWS)
def test_a_sliding_window_is_kept_at_every_length(window: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    encoder = modernbert(window)
    session = onnxruntime.InferenceSession(ONNXRUNTIME.onnx_model(encoder).SerializeToString())
    for length in (3, 12, 40, 130):
        for padded in (False, True):
            batch = families.batch((2, length), padded)
            expected = encoder(batch)["last_hidden_state"].numpy()
            found = session.run(None, {name: batch[name].numpy() for name in encoder.inputs})[0]
            kept = batch["attention_mask"].bool().numpy()
            np.testing.assert_allclose(found[kept], expected[kept], atol=1e-4, err_msg=f"{length}, {padded}")


def test_only_the_global_mask_of_modernbert_is_light() -> None:
    assert len(light_masks(Translation(modernbert(128).graph, OnnxGraph(21)))) == 1


# -- the proof, on small graphs ------------------------------------------------------------------------------


class Masked(torch.nn.Module):
    """Adds what a function makes of the mask to something of shape (batch, 2, length, length)."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        scores = input_ids[:, None, :, None] * input_ids[:, None, None, :].expand(-1, 2, -1, -1)
        return scores + self.function(attention_mask)


def graph_of(function: Any) -> fx.GraphModule:
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=2, max=1000)}
    ids = torch.ones(2, 5, dtype=torch.int64)
    program = torch.export.export(Masked(function), (ids, ids.clone()), dynamic_shapes=(sizes, sizes))
    module = program.module()
    assert isinstance(module, fx.GraphModule)
    return module


def numbers(length: int, like: torch.Tensor) -> torch.Tensor:
    return torch.arange(length, device=like.device)


PADDING: dict[str, Any] = {
    "old BERT": lambda mask: (1.0 - mask[:, None, None, :].float()) * -1e4,
    "filled": lambda mask: torch.zeros(()).masked_fill(mask[:, None, None, :] == 0, -1e9),
    "and all ones": lambda mask: torch.where(
        mask[:, None, None, :].bool() & (numbers(mask.shape[1], mask) >= 0)[:, None], 0.0, -1.0
    ),
}
OTHERS: dict[str, Any] = {
    "window": lambda mask: torch.where(
        mask[:, None, None, :].bool()
        & ((numbers(mask.shape[1], mask)[:, None] - numbers(mask.shape[1], mask)).abs() <= 500),
        0.0,
        -1.0,
    ),
    "causal": lambda mask: mask[:, None, None, :] * mask.new_ones(mask.shape[1], mask.shape[1]).tril(),
    "late tokens": lambda mask: torch.where(
        mask[:, None, None, :].bool() & (numbers(mask.shape[1], mask) < 100), 0.0, -1.0
    ),
    "of both tokens": lambda mask: mask[:, None, None, :] * mask[:, None, :, None],
    "of queries": lambda mask: mask[:, None, :, None].float(),
    "counted": lambda mask: mask.cumsum(-1)[:, None, None, :],
    "by length": lambda mask: mask[:, None, None, :].float() / mask.shape[1],
}


def added(module: fx.GraphModule) -> fx.Node:
    """Return what is added to the scores."""
    last = next(node for node in reversed(module.graph.nodes) if node.op == "call_function")
    return last.args[1]  # type: ignore[return-value]


@pytest.mark.parametrize("name", PADDING)
def test_masks_of_padding_are_proven(name: str) -> None:
    module = graph_of(PADDING[name])
    found = prove(module).get(added(module))
    assert isinstance(found, Padding) and (found.rows, found.tokens) == (-4, -1)
    mask = torch.tensor([[1, 0, 1], [0, 1, 1]])
    expected = torch.where(mask.bool(), found.keep, found.fill)[:, None, None, :].expand(2, 2, 3, 3)
    ids = torch.zeros_like(mask)
    torch.testing.assert_close(module(ids, mask).double(), expected.double())


@pytest.mark.parametrize("name", OTHERS)
def test_masks_of_another_kind_are_not(name: str) -> None:
    module = graph_of(OTHERS[name])
    found = prove(module).get(added(module))
    assert not (isinstance(found, Padding) and (found.rows, found.tokens) == (-4, -1))
