from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

import octavo
from octavo.errors import ModelError, SpecError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.graph.rewrites.integer import (
    IntegerFunction,
    IntegerGelu,
    IntegerLayerNorm,
    IntegerSoftmax,
    integer_only,
)
from octavo.methods import quantize
from octavo.spec import IntegerFunctions, Override, PerGroup, Recipe, SplitGroups
from tests.graph.families import batch, fresh

IBERT = octavo.recipe("ibert")
FLOAT_FUNCTIONS = replace(IBERT, passes=())


@cache
def tiny(family: str) -> Encoder:
    return fresh(family)


def calibrated(recipe: Recipe, family: str = "bert") -> QuantizedEncoder:
    return quantize(tiny(family), recipe, [batch((2, 9)), batch((3, 12), seed=1)])


def outputs(model: Encoder) -> Tensor:
    return next(iter(model(batch((4, 11), padded=True, seed=7)).values()))


def counts(model: QuantizedEncoder) -> list[int]:
    kinds = (IntegerGelu, IntegerSoftmax, IntegerLayerNorm)
    return [sum(isinstance(module, kind) for module in model.graph.modules()) for kind in kinds]


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "electra"])
def test_every_function_is_replaced_and_the_outputs_stay_near(family: str) -> None:
    model = calibrated(IBERT, family)
    head = 1 if family == "electra" else 0
    assert counts(model) == [2 + head, 2, 5]
    operations = {str(node.target) for node in model.graph.graph.nodes}
    assert not {"aten.gelu.default", "aten.softmax.int", "aten.layer_norm.default"} & operations
    reference = outputs(tiny(family))
    assert (outputs(model) - reference).abs().max() < 0.1 * max(1.0, float(reference.abs().max()))


def test_the_rewrite_of_a_finished_model_equals_that_of_the_recipe() -> None:
    model = calibrated(FLOAT_FUNCTIONS)
    before = outputs(model)
    assert torch.equal(outputs(integer_only(model)), outputs(calibrated(IBERT)))
    assert torch.equal(outputs(model), before) and counts(model) == [0, 0, 0]


def test_values_inside_are_whole_multiples_of_the_grid() -> None:
    model = calibrated(IBERT)
    softmax = next(module for module in model.graph.modules() if isinstance(module, IntegerSoftmax))
    found: list[Tensor] = []
    softmax.register_forward_hook(lambda module, args, result: found.append(result.clone()))
    outputs(model)
    scaled = found[0].double() * 2**30
    # float32 carries 24 bits of the 30
    assert ((scaled - scaled.round()).abs() < 1e-9).all()
    assert (found[0].sum(-1) - 1).abs().max() < 1e-5


def test_quantizers_that_are_off_bring_the_float_functions_back() -> None:
    model = calibrated(IBERT)
    model.set_state("*", "off")
    torch.testing.assert_close(outputs(model), outputs(tiny("bert")), rtol=1e-5, atol=1e-5)


def test_an_integer_model_survives_saving(tmp_path: Path) -> None:
    model = calibrated(IBERT)
    loaded = octavo.load(model.save(tmp_path / "model"))
    assert isinstance(loaded, QuantizedEncoder)
    assert loaded.passes == (IntegerFunctions(),)
    assert torch.equal(outputs(loaded), outputs(model))


def test_relu_is_an_integer_function_already() -> None:
    encoder = fresh("bert", hidden_act="relu")
    model = quantize(encoder, IBERT, [batch((2, 9))])
    assert counts(model) == [0, 2, 5]


def test_a_function_written_out_is_named() -> None:
    with pytest.raises(ModelError, match=r"tiny albert: \w+ \(aten\.\w+.*\) is a function written out"):
        calibrated(IBERT, "albert")


def test_a_tensor_that_is_not_quantized_is_named() -> None:
    recipe = replace(
        IBERT, overrides=(*IBERT.overrides, Override(sites=("layers.1.attention_scores",), off=True))
    )
    with pytest.raises(
        SpecError, match=r"layers.1.attention_probs: softmax cannot.*not quantized; use placement full"
    ):
        calibrated(recipe)


def test_groups_before_a_norm_are_named() -> None:
    groups = Override(sites=("layers.*.ffn_residual",), granularity=PerGroup(groups=4))
    recipe = replace(IBERT, overrides=(*IBERT.overrides, groups))
    with pytest.raises(
        SpecError,
        match=r"layers.0.layer_output: layer_norm cannot.*reads layers.0.ffn_residual, which has not",
    ):
        calibrated(recipe)


def test_a_second_rewrite_is_an_error() -> None:
    with pytest.raises(SpecError, match="has integer functions already"):
        integer_only(calibrated(IBERT))


@pytest.mark.parametrize("family", ["bert", "roberta-prelayernorm"])
def test_functions_stay_in_integers_after_folding_and_splitting(family: str, tmp_path: Path) -> None:
    """Every later rewrite copies quantizers: the functions must read the copies, not what they were."""
    groups = Override(roles=("value",), granularity=PerGroup(groups=2))
    recipe = replace(IBERT, overrides=(*IBERT.overrides, groups), passes=(IntegerFunctions(), SplitGroups()))
    model = calibrated(recipe, family)
    functions = [m for m in model.graph.modules() if isinstance(m, IntegerFunction)]
    own = {id(quantizer) for quantizer in model.quantizers.values()}
    assert functions and all(function.is_active for function in functions)
    assert all(id(source) in own for function in functions for source in function._sources)
    loaded = octavo.load(model.save(tmp_path / "model"))
    assert torch.equal(outputs(loaded), outputs(model))
