from __future__ import annotations

import torch

from octavo.graph import Encoder
from octavo.runtime.translate.context import Translation
from octavo.runtime.translate.masks import light_masks
from octavo.runtime.translate.onnx_graph import OnnxGraph


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
