from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from octavo.errors import ModelError
from octavo.graph.taps import layer_ends, tapped
from octavo.methods import quantize
from octavo.spec.presets import recipe
from tests.graph import families


@pytest.mark.parametrize("family", ["bert", "mpnet", "modernbert", "deberta-v2", "mobilebert"])
def test_a_layer_ends_with_its_last_hidden_state(family: str) -> None:
    encoder = families.fresh(family)
    ends = layer_ends(encoder)
    assert [end.layer for end in ends] == list(range(encoder.layers))
    assert {end.role for end in ends} <= {"layer_output", "ffn_residual"}


def test_taps_are_results_beside_or_instead_of_the_outputs() -> None:
    encoder = families.fresh("bert")
    batch = families.batch((2, 7))
    ends = layer_ends(encoder)
    inputs = encoder.arguments(batch)
    logits, first, second = tapped(encoder, ends)(*inputs)
    assert torch.equal(logits, encoder.graph(*inputs)[0])
    alone = tapped(encoder, ends[:1], alone=True)
    assert torch.equal(alone(*inputs)[0], first) and not torch.equal(first, second)
    mine = {id(parameter) for parameter in encoder.graph.parameters()}
    theirs = [parameter for _, parameter in alone.named_parameters()]
    assert all(id(parameter) in mine for parameter in theirs) and len(theirs) < len(mine)


def test_a_quantized_tensor_is_seen_as_its_readers_see_it() -> None:
    encoder = families.fresh("bert")
    batch = families.batch((2, 7))
    for name in ("w8a8", "int8"):  # int8's residual sums read what is not quantized
        model = quantize(encoder, recipe(name), [batch])
        end = layer_ends(model)[0]
        (seen,) = tapped(model, [end], alone=True)(*model.arguments(batch))
        if name == "w8a8":
            quantizer = model.quantizers[end.name]
            assert torch.equal(seen, quantizer(seen.clone()))


def test_a_site_in_pieces_is_told() -> None:
    encoder = families.fresh("bert")
    end = layer_ends(encoder)[0]
    with pytest.raises(ModelError, match=r"a pass has cut layers\.0\.\w+ into pieces"):
        tapped(encoder, [replace(end, targets=("gone",))])
