from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from octavo.errors import SpecError
from octavo.graph import attach
from octavo.graph.quantizers.importance import channel_importance, weigh_channels
from octavo.methods import quantize
from octavo.spec import AllMinMax, Mse, Placement, Recipe, TensorSpec
from tests.graph import families

BATCHES = [families.batch((3, 12), padded=True, seed=seed) for seed in range(3)]
WEIGHTED = Recipe(name="weighted", weights=None, activations=TensorSpec(bits=4, estimator=Mse(weighted=True)))


def importance(site: str, placement: Placement = "full") -> torch.Tensor | None:
    model = attach(families.captured("bert")[1], replace(WEIGHTED, placement=placement))
    calls = {str(node.target): node for node in model.graph.graph.nodes if node.op == "call_module"}
    width = model.quantizers[site].site.width
    assert width is not None
    return channel_importance(model.graph, calls[f"quantizers.{site.replace('.', '_')}"], width)


def parameter(path: str) -> torch.Tensor:
    return families.captured("bert")[1].graph.get_parameter(f"bert.encoder.layer.{path}").detach().double()


@pytest.mark.parametrize("placement", ["full", "linear-inputs"])
def test_three_projections_that_read_one_tensor_add_up(placement: Placement) -> None:
    names = ("query", "key", "value")
    columns = [parameter(f"1.attention.self.{name}.weight").square().sum(0) for name in names]
    found = importance("layers.0.layer_output", placement)
    assert found is not None and torch.allclose(found, torch.stack(columns).sum(0))


def test_behind_a_norm_its_weight_counts_as_well() -> None:
    gain = parameter("0.attention.output.LayerNorm.weight").square()
    columns = parameter("0.intermediate.dense.weight").square().sum(0)
    found = importance("layers.0.attention_residual")
    assert found is not None and torch.allclose(found, gain * columns)


def test_where_only_products_of_activations_read_all_dimensions_count_the_same() -> None:
    assert importance("layers.0.query") is None


def test_a_dimension_that_nothing_reads_does_not_widen_the_range() -> None:
    encoder = families.fresh("bert")
    with torch.no_grad():
        encoder.graph.get_parameter("bert.encoder.layer.0.intermediate.dense.bias")[5] = 50.0
        encoder.graph.get_parameter("bert.encoder.layer.0.output.dense.weight")[:, 5] = 0.0
    site = "layers.0.ffn_hidden"
    plain = replace(WEIGHTED, activations=TensorSpec(bits=4, estimator=Mse()))
    with pytest.warns(UserWarning, match="clips whole dimensions"):
        weighted = quantize(encoder, WEIGHTED, BATCHES).quantizers[site].scale
    assert float(weighted) < 0.2 * float(quantize(encoder, plain, BATCHES).quantizers[site].scale)


@pytest.mark.filterwarnings("ignore:.*clips whole dimensions")
@pytest.mark.parametrize("bits", [8, 4])
def test_on_its_own_objective_it_is_never_worse_than_min_max(bits: int) -> None:
    encoder = families.captured("bert")[1]
    recipe = replace(WEIGHTED, activations=TensorSpec(bits=bits, estimator=Mse(weighted=True)))
    whole = replace(recipe, activations=TensorSpec(bits=bits, estimator=AllMinMax()))
    ours, theirs = quantize(encoder, recipe, BATCHES), quantize(encoder, whole, BATCHES)
    site = "layers.0.layer_output"
    weight = importance(site)
    assert weight is not None
    x = torch.randn(400, 32, generator=torch.Generator().manual_seed(0)) * 1.5
    errors = []
    for model in (ours, theirs):  # found anew on one tensor, so that both are judged on what they saw
        quantizer = attach(encoder, model.recipe).quantizers[site]
        quantizer.weigh(weight if model is ours else None)
        quantizer.observe(x)
        quantizer.fix()
        errors.append(float(((quantizer(x) - x).double().square() * weight).sum()))
    assert errors[0] <= errors[1] * 1.001  # a histogram knows values to the width of its bins


def test_weights_and_dynamic_ranges_are_not_weighed() -> None:
    with pytest.raises(SpecError, match=r"weighted=True\) finds ranges of activations only"):
        attach(
            families.captured("bert")[1], replace(WEIGHTED, weights=TensorSpec(estimator=Mse(weighted=True)))
        )
    with pytest.raises(SpecError, match=r"finds static ranges only; drop weighted, or dynamic"):
        TensorSpec(estimator=Mse(weighted=True), dynamic=True)


def test_only_those_that_ask_for_it_are_weighed() -> None:
    model = attach(families.captured("bert")[1], replace(WEIGHTED, activations=TensorSpec(estimator=Mse())))
    weigh_channels(model)
    assert all(quantizer._importance is None for quantizer in model.quantizers.values())
