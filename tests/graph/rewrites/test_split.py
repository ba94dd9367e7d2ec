from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

import octavo
from octavo.errors import CalibrationError, SpecError
from octavo.graph import Encoder, QuantizedEncoder, attach
from octavo.graph.rewrites.split import apply_split, split_groups
from octavo.methods import quantize
from octavo.spec import (
    AllMinMax,
    Granularity,
    Override,
    PerChannel,
    PerEmbedding,
    PerGroup,
    PerTensor,
    Recipe,
    SplitGroups,
    TensorSpec,
)
from tests.graph.families import batch, fresh

FFN = ("layers.*ffn_input", "layers.*ffn_output", "layers.*ffn_residual")
POST_NORM = ("bert", "roberta", "albert", "mobilebert", "distilbert", "electra", "mpnet")


def peg(groups: int = 6, permute: bool = True, sites: tuple[str, ...] = FFN, **changes: object) -> Recipe:
    """W8A8 with groups; the end stays float so that equality is not a matter of a few output levels."""
    granularity = PerGroup(groups=groups, permute=permute)
    base = Recipe(
        name="peg",
        weights=TensorSpec(symmetric=True),
        activations=TensorSpec(estimator=AllMinMax()),
        overrides=(Override(sites=sites, granularity=granularity), Override(sites=("logits*",), off=True)),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def calibrated(recipe: Recipe, family: str = "bert", double: bool = False) -> QuantizedEncoder:
    return quantize(spread(family, double), recipe, [batch((2, 9)), batch((3, 12), seed=1)])


@cache
def spread(family: str, double: bool) -> Encoder:
    """An encoder some of whose channels are large, so that a permutation has something to sort."""
    encoder = fresh(family)
    if double:
        encoder.graph.double()
    with torch.no_grad():
        for name, parameter in encoder.graph.named_parameters():
            if "norm" in name.lower() and name.endswith("weight") and parameter.dim() == 1:
                parameter[3::7] *= 5
    return encoder


def outputs(model: Encoder, seed: int = 7) -> Tensor:
    return next(iter(model(batch((4, 11), padded=True, seed=seed)).values()))


def operations(model: Encoder) -> list[str]:
    return [str(node.target) for node in model.graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("permute", [True, False], ids=["permuted", "in order"])
@pytest.mark.parametrize("family", POST_NORM)
def test_outputs_equal_the_simulated_model_in_float64(family: str, permute: bool) -> None:
    model = calibrated(peg(permute=permute), family, double=True)
    torch.testing.assert_close(outputs(split_groups(model)), outputs(model), rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", ["bert", "mobilebert"])
def test_every_activation_quantizer_becomes_per_tensor(family: str) -> None:
    split = split_groups(calibrated(peg(), family))
    for name, quantizer in split.quantizers.items():
        assert quantizer.spec.granularity == PerTensor(), name
        assert quantizer.scale.numel() == 1


def test_pieces_are_sites_with_the_ranges_of_their_groups() -> None:
    model = calibrated(peg(groups=6))
    split = split_groups(model)
    whole = model.quantizers["layers.1.ffn_output"]
    pieces = [split.quantizers[f"layers.1.ffn_output.groups.{k}"] for k in range(6)]
    assert torch.equal(torch.cat([p.scale for p in pieces]), whole.scale)
    assert torch.equal(torch.cat([p.zero_point for p in pieces]), whole.zero_point)
    assert [p.site.width for p in pieces] == [6, 6, 5, 5, 5, 5]
    assert {p.site.role for p in pieces} == {"ffn_output"}
    names = [site.name for site in (*split.activation_sites, *split.weight_sites)]
    assert len(names) == len(set(names))
    assert {"layers.1.ffn_hidden.groups.5.weight", "layers.1.ffn_input.permuted.weight"} <= set(names)
    assert not {"layers.1.ffn_output", "layers.1.ffn_hidden.weight", "layers.1.ffn_input.weight"} & set(names)
    nodes = {node.name for node in split.graph.graph.nodes}
    assert all(site.targets[0] in nodes for site in split.activation_sites)


def test_two_gathers_a_layer_remain_and_none_without_a_permutation() -> None:
    assert operations(split_groups(calibrated(peg()))).count("aten.index_select.default") == 2 * 2
    assert "aten.index_select.default" not in operations(split_groups(calibrated(peg(permute=False))))


def test_the_model_itself_stays_as_it_is() -> None:
    model = calibrated(peg())
    before, names, nodes = outputs(model), list(model.quantizers), len(model.graph.graph.nodes)
    split = split_groups(model)
    split.set_state("*", "off")
    assert torch.equal(outputs(model), before)
    assert list(model.quantizers) == names and len(model.graph.graph.nodes) == nodes


def test_without_quantization_it_computes_the_float_model() -> None:
    model = calibrated(peg())
    split = split_groups(model)
    split.set_state("*", "off")
    model.set_state("layers.*", "off")
    model.set_state("embeddings.*", "off")
    model.set_state("pooler*", "off")
    # weights of the pieces stay on their grid: that is what a split model stores
    model.set_state("*.ffn_*.weight", "fix")
    torch.testing.assert_close(outputs(split), outputs(model), rtol=1e-4, atol=1e-4)


WEIGHTS: dict[str, Granularity] = {
    "rows": PerChannel(),
    "columns": PerEmbedding(),
    "groups of rows": PerGroup(groups=4),
}


@pytest.mark.parametrize("granularity", WEIGHTS.values(), ids=WEIGHTS)
def test_finer_weights_keep_their_scales(granularity: Granularity) -> None:
    recipe = peg()
    finer = Override(roles=("linear_weight",), bits=4, granularity=granularity)
    recipe = replace(recipe, overrides=(finer, *recipe.overrides))
    model = calibrated(recipe, double=True)
    torch.testing.assert_close(outputs(split_groups(model)), outputs(model), rtol=0, atol=1e-9)


CASES = {
    "float weights": peg(weights=None),
    "dynamic ranges": peg(permute=False, activations=TensorSpec(dynamic=True)),
    "linear inputs": peg(placement="linear-inputs", sites=("layers.*.ffn_input",)),
    "layer outputs, which attention reads": peg(sites=("layers.*.layer_output",)),
    "columns and rows of one matrix": peg(sites=("layers.*.ffn_hidden", "layers.*.ffn_output")),
    "one layer": peg(sites=("layers.0.ffn_*put", "layers.0.ffn_residual")),
    "one group": peg(groups=1),
}


@pytest.mark.parametrize("recipe", CASES.values(), ids=CASES)
def test_any_set_of_grouped_sites_can_be_split(recipe: Recipe) -> None:
    model = calibrated(recipe, double=True)
    split = split_groups(model)
    assert not any(isinstance(q.spec.granularity, PerGroup) for q in split.quantizers.values())
    torch.testing.assert_close(outputs(split), outputs(model), rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", ["bert", "albert"])
@pytest.mark.parametrize("permute", [True, False], ids=["permuted", "in order"])
def test_a_split_model_survives_saving(family: str, permute: bool, tmp_path: Path) -> None:
    split = split_groups(calibrated(peg(permute=permute), family))
    loaded = octavo.load(split.save(tmp_path / "model"))
    assert isinstance(loaded, QuantizedEncoder)
    assert list(loaded.quantizers) == list(split.quantizers)
    assert loaded.passes == (SplitGroups(),)
    assert torch.equal(outputs(loaded), outputs(split))
    again = octavo.load(loaded.save(tmp_path / "again"))
    assert torch.equal(outputs(again), outputs(split))


def test_it_trains_like_any_graph() -> None:
    split = split_groups(calibrated(peg()))
    split.graph.train()
    split.set_state("*", "learn")
    result = split.graph(*split.arguments(batch((2, 9))))[0]
    result.sum().backward()
    assert split.quantizers["layers.0.ffn_input.groups.0"].log_scale.grad is not None  # type: ignore[union-attr]


# -- groups of optimal sizes, and the hidden layer -----------------------------------------------------------

HIDDEN = ("layers.*ffn_hidden",)


def uneven(sites: tuple[str, ...] = (*FFN, *HIDDEN), groups: int = 5, **changes: object) -> Recipe:
    """As `peg`, but with groups of optimal sizes, some of them of a single channel."""
    recipe = peg(sites=sites, **changes)
    optimal = PerGroup(groups=groups, permute=True, sizes="optimal")
    return replace(recipe, overrides=(replace(recipe.overrides[0], granularity=optimal), recipe.overrides[1]))


@pytest.mark.parametrize("narrow", [None, 1, 12], ids=["each alone", "single channels", "narrow ones"])
@pytest.mark.parametrize("family", ["bert", "albert", "mobilebert"])
def test_uneven_groups_equal_the_simulated_model_in_float64(family: str, narrow: int | None) -> None:
    model = calibrated(uneven(), family, double=True)
    split = split_groups(model, narrow)
    assert all(q.scale.numel() == 1 for q in split.quantizers.values() if q.site.kind == "activation")
    torch.testing.assert_close(outputs(split), outputs(model), rtol=0, atol=1e-9)


def test_the_hidden_layer_is_made_in_order_and_needs_no_gather() -> None:
    model = calibrated(uneven(HIDDEN))
    split = split_groups(model)
    assert "aten.index_select.default" not in operations(split)
    whole = model.quantizers["layers.0.ffn_hidden"]
    order = torch.argsort(whole.index, stable=True)
    rows = model.quantizers["layers.0.ffn_hidden.weight"].constant
    moved = split.quantizers["layers.0.ffn_hidden.permuted.weight"].constant
    assert rows is not None and moved is not None
    assert torch.equal(moved, rows[order])


@pytest.mark.parametrize("gates", [(), ("layers.*ffn_gate", "layers.*ffn_up")], ids=["hidden", "with gates"])
def test_a_gated_hidden_layer_is_made_in_order_by_both_halves(gates: tuple[str, ...]) -> None:
    """ModernBERT makes gate and value by one linear layer; groups at these keep their gathers."""
    recipe = uneven((*HIDDEN, *gates), activations=None)
    model = calibrated(recipe, "modernbert")
    split = split_groups(model)
    assert ("aten.index_select.default" in operations(split)) == bool(gates)
    model.set_state("*ffn_*", "off")
    model.set_state("*.weight", "fix")
    split.set_state("*.groups.[0-4]", "off")
    # it has no double: without rounding, round-off is all that may differ
    torch.testing.assert_close(outputs(split), outputs(model), rtol=1e-4, atol=1e-5)


NORMS = ("layers.*ffn_input", "layers.*layer_output", *HIDDEN)


@pytest.mark.parametrize("narrow", [None, 8], ids=["each alone", "narrow ones together"])
@pytest.mark.parametrize("family", ["bert", "albert"])
def test_the_largest_group_may_stay_in_place(family: str, narrow: int | None, tmp_path: Path) -> None:
    recipe = uneven(NORMS, groups=4, placement="linear-inputs")
    model = calibrated(recipe, family, double=True)
    split = split_groups(model, narrow, in_place=True)
    torch.testing.assert_close(outputs(split), outputs(model), rtol=0, atol=1e-9)
    gathered = [n for n in split.graph.graph.nodes if str(n.target) == "aten.index_select.default"]
    assert gathered and all(n.meta["val"].shape[-1] <= 32 for n in gathered)
    single = calibrated(recipe, family)
    loaded = octavo.load(split_groups(single, narrow, in_place=True).save(tmp_path / "model"))
    assert isinstance(loaded, QuantizedEncoder)
    assert torch.equal(outputs(loaded), outputs(split_groups(single, narrow, in_place=True)))


def test_what_a_residual_sum_reads_is_split_as_without_in_place() -> None:
    model = calibrated(uneven(), double=True)
    split = split_groups(model, in_place=True)
    assert "layers.0.ffn_residual.groups.4" in split.quantizers
    torch.testing.assert_close(outputs(split), outputs(model), rtol=0, atol=1e-9)


def test_narrow_groups_go_through_one_product() -> None:
    def products(narrow: int | None) -> int:
        return operations(split_groups(model, narrow)).count("aten.linear.default")

    model = calibrated(uneven(HIDDEN, groups=4))
    plain = operations(model).count("aten.linear.default")
    thin = [
        int((torch.bincount(q.index) <= 8).sum())
        for name, q in model.quantizers.items()
        if q.axis is not None
    ]
    assert max(thin) > 1  # or the model has nothing to bundle
    assert products(None) == plain + 2 * 3
    assert products(8) == plain + 2 * 3 - sum(max(count - 1, 0) for count in thin)
    names = [site.name for site in split_groups(model, 8).weight_sites]
    assert any("ffn_output.groups." in name and "_" in name.rpartition("groups.")[2] for name in names)


@pytest.mark.parametrize("narrow", [None, 8], ids=["each alone", "narrow ones together"])
@pytest.mark.parametrize("family", ["bert", "albert"])
def test_a_split_of_uneven_groups_survives_saving(family: str, narrow: int | None, tmp_path: Path) -> None:
    split = split_groups(calibrated(uneven(), family), narrow)
    loaded = octavo.load(split.save(tmp_path / "model"))
    assert isinstance(loaded, QuantizedEncoder)
    assert loaded.passes == (SplitGroups(narrow=narrow),)
    assert list(loaded.quantizers) == list(split.quantizers)
    assert torch.equal(outputs(loaded), outputs(split))


def test_a_split_that_was_saved_with_a_gather_at_the_hidden_layer_loads_as_it_was(tmp_path: Path) -> None:
    model = calibrated(peg(sites=HIDDEN))
    before = apply_split(model, SplitGroups(), saved=())
    assert "aten.index_select.default" in operations(before)
    loaded = octavo.load(before.save(tmp_path / "model"))
    assert torch.equal(outputs(loaded), outputs(before))  # type: ignore[arg-type]


# -- what cannot be split ----------------------------------------------------------------------------------


def test_nothing_to_split_is_an_error() -> None:
    with pytest.raises(SpecError, match=r"recipe 'w8a8' has no per-group activations.*such as w8a8-peg6$"):
        split_groups(calibrated(octavo.recipe("w8a8")))


def test_a_pre_norm_layer_is_named() -> None:
    with pytest.raises(
        SpecError, match=r"^layers.0.ffn_residual does not add layers.0.ffn_input back.*w8a8-mp"
    ):
        split_groups(calibrated(peg(), "megatron-bert"))


def test_permutations_of_their_own_are_named() -> None:
    recipe = peg(overrides=(Override(sites=FFN, granularity=PerGroup(groups=3, permute=True, shared=False)),))
    with pytest.raises(
        SpecError, match=r"^layers.0.ffn_input and layers.0.ffn_output have different.*shared: true$"
    ):
        split_groups(calibrated(recipe))


def test_per_embedding_ranges_are_named() -> None:
    more = Override(sites=("layers.*.layer_output",), granularity=PerEmbedding())
    recipe = peg()
    with pytest.raises(
        SpecError, match=r"^layers.0.layer_output is PerEmbedding.*use PerGroup or PerTensor there$"
    ):
        split_groups(calibrated(replace(recipe, overrides=(*recipe.overrides, more))))


def test_a_model_without_ranges_is_named() -> None:
    with pytest.raises(
        CalibrationError, match="still in state observe; calibrate and fix the model, then split it"
    ):
        split_groups(attach(spread("bert", False), peg()))


def test_a_second_split_is_an_error() -> None:
    with pytest.raises(SpecError, match="is split already"):
        split_groups(split_groups(calibrated(peg())))
