from __future__ import annotations

import pytest
import torch
from torch import fx

from octavo.graph import Encoder, attach
from octavo.graph.sites.flow import Flow, operation
from octavo.spec import MinMax, Recipe, TensorSpec
from tests.graph import families

# Families that only ever add the mask to the scores; DeBERTa, say, also multiplies embeddings with zeros and
# ones.
ADDING = ("bert", "roberta", "mobilebert", "distilbert", "electra", "albert", "mpnet")


@pytest.mark.parametrize("family", ADDING)
def test_no_path_leads_from_the_mask_to_a_quantizer_except_through_softmax(family: str) -> None:
    recipe = Recipe(name="all", weights=None, activations=TensorSpec(estimator=MinMax()))
    graph = attach(families.captured(family)[1], recipe).graph.graph
    tainted: set[fx.Node] = set()
    for node in graph.nodes:
        is_source = node.op == "placeholder" and node.target == "attention_mask"
        # the size of the mask is the size of the text
        spreads = isinstance(node.meta.get("val"), torch.Tensor) and "softmax" not in str(node.target)
        if is_source or (spreads and any(n in tainted for n in node.all_input_nodes)):
            tainted.add(node)
    assert any("softmax" in str(user.target) for node in tainted for user in node.users)
    assert not [node for node in tainted if str(node.target).startswith("quantizers.")]


def test_operations_go_by_their_bare_names(bert: Encoder) -> None:
    names = {operation(node) for node in bert.graph.graph.nodes}
    assert {
        "linear",
        "matmul",
        "softmax",
        "layer_norm",
        "add",
        "embedding",
        "dropout",
        "placeholder",
    } <= names


def test_a_value_knows_its_readers_and_its_weights(bert: Encoder) -> None:
    flow = Flow(bert.graph)
    site = next(site for site in bert.activation_sites if site.name == "layers.0.ffn_input")
    value = next(value for value in flow.values.values() if value.node.name == site.targets[0])
    assert sorted(flow.working[reader] for reader in value.readers) == ["linear", "sum"]
    assert [weight.target for weight in value.weights] == [
        "bert.encoder.layer.0.attention.output.LayerNorm.weight"
    ]
