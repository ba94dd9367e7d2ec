from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

import octavo
from octavo.errors import CalibrationError, SpecError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.methods import quantize
from octavo.spec import (
    AllMinMax,
    Estimator,
    Granularity,
    MinMax,
    Override,
    Percentile,
    PerEmbedding,
    PerGroup,
    PerTensor,
    Recipe,
    RunningMinMax,
    TensorSpec,
)
from tests.graph import families

FFN = ("layers.*.ffn_input", "layers.*.ffn_output", "layers.*.ffn_residual")
BATCHES = [families.batch((2, 9), seed=seed) for seed in range(4)]


@pytest.fixture(scope="module")
def bert() -> Encoder:
    return families.captured("bert")[1]


def recipe(granularity: Granularity, bits: int = 8) -> Recipe:
    return Recipe(
        name="peg",
        weights=TensorSpec(symmetric=True),
        activations=TensorSpec(estimator=AllMinMax()),
        overrides=(Override(sites=FFN, granularity=granularity, bits=bits),),
    )


def peg(
    encoder: Encoder, groups: int, shared: bool = True, batches: list[dict[str, Tensor]] = BATCHES
) -> QuantizedEncoder:
    return quantize(encoder, recipe(PerGroup(groups=groups, permute=True, shared=shared)), batches)


def site_values(encoder: Encoder, name: str, batches: list[dict[str, Tensor]]) -> Tensor:
    """All values at a site of the model with quantized weights, (tokens, width)."""
    model = quantize(encoder, recipe(PerTensor()), batches)
    for other in model.quantizers:
        if not other.endswith(".weight"):
            model.set_state(other, "off")
    seen: list[Tensor] = []
    model.quantizers[name].register_forward_pre_hook(
        lambda _, args: seen.append(args[0].flatten(0, 1).clone())
    )
    for batch in batches:
        model(batch)
    return torch.cat(seen)


def groups_by_hand(values: Tensor, sizes: list[int]) -> Tensor:
    """Channels in the order of their ranges, cut into groups of these sizes."""
    order = torch.argsort(values.amax(0) - values.amin(0), stable=True)
    index = torch.empty_like(order)
    index[order] = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return index


def test_groups_follow_the_ranges_over_all_batches(bert: Encoder) -> None:
    model = peg(bert, 3, shared=False)
    for name in ("layers.0.ffn_output", "layers.1.ffn_residual", "layers.1.ffn_input"):
        expected = groups_by_hand(site_values(bert, name, BATCHES), [11, 11, 10])
        assert torch.equal(model.quantizers[name].index, expected), name
    last = groups_by_hand(site_values(bert, "layers.0.ffn_output", BATCHES[-1:]), [11, 11, 10])
    assert not torch.equal(
        model.quantizers["layers.0.ffn_output"].index, last
    )  # what the last batch alone would give


@pytest.mark.parametrize(
    "estimator",
    [MinMax(), RunningMinMax(), AllMinMax(), Percentile(percent=100)],
    ids=lambda e: type(e).__name__,
)
def test_every_estimator_heeds_the_permutation(bert: Encoder, estimator: Estimator) -> None:
    batch = BATCHES[0]
    override = Override(
        sites=("layers.0.ffn_output",), granularity=PerGroup(groups=4, permute=True), estimator=estimator
    )
    weights = TensorSpec(symmetric=True)
    model = quantize(
        bert, Recipe(name="r", weights=weights, activations=None, overrides=(override,)), [batch]
    )
    quantizer = model.quantizers["layers.0.ffn_output"]
    values = site_values(bert, "layers.0.ffn_output", [batch])
    for group in range(4):
        members = values[:, quantizer.index == group]
        width = float(members.max().clamp(min=0) - members.min().clamp(max=0))
        assert float(quantizer.scale[group]) * 255 == pytest.approx(width, rel=1e-4)


def test_one_group_is_per_tensor_to_the_bit(bert: Encoder) -> None:
    whole = quantize(bert, recipe(PerTensor()), BATCHES)
    for batch in BATCHES:
        assert torch.equal(peg(bert, 1)(batch)["logits"], whole(batch)["logits"])


def test_a_group_for_every_channel_is_per_embedding_to_the_bit(bert: Encoder) -> None:
    finest = quantize(bert, recipe(PerEmbedding()), BATCHES)
    for batch in BATCHES:
        assert torch.equal(peg(bert, 32)(batch)["logits"], finest(batch)["logits"])


def test_a_layer_shares_one_permutation_and_layers_differ(bert: Encoder) -> None:
    quantizers = peg(bert, 4).quantizers
    for layer in (0, 1):
        first, *others = (quantizers[name.replace("*", str(layer))].index for name in FFN)
        assert all(torch.equal(first, other) for other in others)
    assert not torch.equal(quantizers["layers.0.ffn_input"].index, quantizers["layers.1.ffn_input"].index)


def test_each_tensor_has_its_own_permutation_if_asked(bert: Encoder) -> None:
    quantizers = peg(bert, 4, shared=False).quantizers
    indices = [quantizers[name.replace("*", "0")].index for name in FFN]
    assert not all(torch.equal(indices[0], index) for index in indices)


def test_the_shared_permutation_is_that_of_the_tensor_whose_outliers_stand_out_most(bert: Encoder) -> None:
    encoder = families.fresh("bert")
    with torch.no_grad():
        encoder.graph.get_parameter("bert.encoder.layer.0.output.dense.bias")[5] = 40.0
        encoder.graph.get_parameter("bert.encoder.layer.0.output.dense.weight")[5] *= 300
    index = peg(encoder, 4).quantizers["layers.0.ffn_input"].index
    assert int(index[5]) == 3


@pytest.mark.parametrize("groups", [3, 5, 7, 31], ids=lambda k: f"{k} groups")
def test_groups_need_not_divide_the_width(bert: Encoder, groups: int) -> None:
    model = peg(bert, groups)
    sizes = torch.bincount(model.quantizers["layers.1.ffn_output"].index)
    assert len(sizes) == groups
    assert int(sizes.max() - sizes.min()) <= 1
    assert model.quantizers["layers.1.ffn_output"].scale.shape == (groups,)


@pytest.mark.parametrize("family", ["roberta", "mobilebert", "modernbert", "squeezebert"])
def test_every_layer_of_other_families_is_permuted(family: str) -> None:
    _, encoder = families.captured(family)
    model = peg(encoder, 4)
    permuted = {
        name: q
        for name, q in model.quantizers.items()
        if name.rpartition(".")[2] in ("ffn_input", "ffn_output", "ffn_residual")
    }
    assert len(permuted) == len(
        [s for s in encoder.activation_sites if s.role in ("ffn_input", "ffn_output", "ffn_residual")]
    )
    for name, quantizer in permuted.items():
        assert quantizer.scale.shape == (4,), name
        assert not torch.equal(quantizer.index, quantizer.index.sort().values), name


def test_layers_past_the_twelfth_are_permuted_too() -> None:
    encoder = families.fresh(
        "roberta", num_hidden_layers=13, hidden_size=16, num_attention_heads=2, intermediate_size=32
    )
    model = peg(encoder, 3, batches=BATCHES[:2])
    for layer in (11, 12):
        quantizer = model.quantizers[f"layers.{layer}.ffn_residual"]
        assert quantizer.scale.shape == (3,)
        assert not torch.equal(quantizer.index, quantizer.index.sort().values)


def test_groups_keep_more_than_one_range_does(bert: Encoder) -> None:
    encoder = families.fresh("bert")
    with torch.no_grad():
        for layer in (
            0,
            1,
        ):  # the paper's disease: one dimension of the FFN's output is far larger than the rest
            encoder.graph.get_parameter(f"bert.encoder.layer.{layer}.output.dense.bias")[5] = 60.0
    exact = encoder(BATCHES[0])["logits"]

    def error(granularity: Granularity) -> float:
        model = quantize(encoder, recipe(granularity, bits=4), BATCHES)
        return float((model(BATCHES[0])["logits"] - exact).norm())

    assert error(PerGroup(groups=4, permute=True)) < error(PerTensor()) / 2


def test_what_is_not_finite_names_the_site() -> None:
    encoder = families.fresh("bert")
    with torch.no_grad():
        encoder.graph.get_parameter("bert.encoder.layer.1.output.dense.bias")[0] = float("nan")
    with pytest.raises(CalibrationError, match=r"layers\.1\.ffn_output.*NaN or infinity"):
        peg(encoder, 3)


# -- optimal sizes -------------------------------------------------------------------------------------------


def optimal(groups: int, shared: bool = True, at_most: bool = False) -> PerGroup:
    return PerGroup(groups=groups, permute=True, shared=shared, at_most=at_most, sizes="optimal")


def noise(model: QuantizedEncoder, name: str) -> float:
    """The expected noise of a site: the square of every channel's scale, summed."""
    quantizer = model.quantizers[name]
    return float(quantizer.scale[quantizer.index].double().square().sum())


def test_groups_of_optimal_sizes_are_the_best_cut_by_brute_force(bert: Encoder) -> None:
    name = "layers.0.ffn_output"
    index = quantize(bert, recipe(optimal(3, shared=False)), BATCHES).quantizers[name].index
    values = site_values(bert, name, BATCHES).double()
    low, high = values.amin(0).clamp(max=0), values.amax(0).clamp(min=0)

    def cost(index: Tensor) -> float:
        groups = [index == group for group in range(3)]
        return float(sum(g.sum() * (high[g].max() - low[g].min()) ** 2 for g in groups))

    order = torch.argsort(high - low)
    best = min(
        cost(
            torch.empty_like(order).scatter_(0, order, torch.tensor([0] * a + [1] * (b - a) + [2] * (32 - b)))
        )
        for a in range(1, 31)
        for b in range(a + 1, 32)
    )
    assert cost(index) == pytest.approx(best, rel=1e-6)


def test_optimal_sizes_have_less_noise_than_even_ones(bert: Encoder) -> None:
    even, best = (
        quantize(bert, recipe(granularity), BATCHES)
        for granularity in (PerGroup(groups=4, permute=True, shared=False), optimal(4, shared=False))
    )
    for name in ("layers.0.ffn_output", "layers.1.ffn_residual", "layers.1.ffn_input"):
        assert noise(best, name) < noise(even, name), name


def test_an_outlier_gets_a_group_of_its_own_in_every_tensor_that_shares_it() -> None:
    encoder = families.fresh("bert")
    with torch.no_grad():
        encoder.graph.get_parameter("bert.encoder.layer.0.output.dense.bias")[5] = 400.0
    model = quantize(encoder, recipe(optimal(3)), BATCHES)
    for name in FFN:
        index = model.quantizers[name.replace("*", "0")].index
        assert torch.equal(index, model.quantizers["layers.0.ffn_input"].index)
        assert int(index[5]) == 2 and int((index == 2).sum()) == 1


def test_sites_share_optimal_groups_only_where_they_ask_for_the_same(bert: Encoder) -> None:
    overrides = (
        Override(sites=FFN[:2], granularity=optimal(3)),
        Override(sites=FFN[2:], granularity=optimal(4)),
    )
    asked = Recipe(name="r", weights=None, activations=None, overrides=overrides)
    found = {name: int(q.index.max()) + 1 for name, q in quantize(bert, asked, BATCHES).quantizers.items()}
    assert found["layers.0.ffn_input"] == found["layers.0.ffn_output"] == 3
    assert found["layers.0.ffn_residual"] == 4


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_the_hidden_layer_of_any_ffn_has_optimal_groups(family: str) -> None:
    encoder = families.captured(family)[1]
    override = Override(roles=("ffn_hidden",), granularity=optimal(3))
    asked = Recipe(name="r", weights=None, activations=None, overrides=(override,))
    model = quantize(encoder, asked, BATCHES)
    assert len(model.quantizers) == 2
    assert all(q.scale.shape == (3,) for q in model.quantizers.values())


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
def test_one_optimal_group_is_per_tensor_to_the_bit(bert: Encoder, shared: bool) -> None:
    whole = quantize(bert, recipe(PerTensor()), BATCHES)
    model = quantize(bert, recipe(optimal(1, shared)), BATCHES)
    assert torch.equal(model(BATCHES[0])["logits"], whole(BATCHES[0])["logits"])


def test_symmetric_grids_are_grouped_by_their_reach(bert: Encoder) -> None:
    override = Override(
        sites=("layers.0.ffn_output",),
        symmetric=True,
        granularity=optimal(3),
        estimator=AllMinMax(),
    )
    asked = Recipe(name="r", weights=TensorSpec(symmetric=True), activations=None, overrides=(override,))
    index = quantize(bert, asked, BATCHES).quantizers["layers.0.ffn_output"].index
    reach = site_values(bert, "layers.0.ffn_output", BATCHES).abs().amax(0)
    for group in range(2):
        assert reach[index == group].max() <= reach[index == group + 1].min()


def _equal_channels(encoder: Encoder, distinct: int) -> None:
    """Let the channels of the first FFN's output take turns with a few values each."""
    weight = encoder.graph.get_parameter("bert.encoder.layer.0.output.dense.weight")
    bias = encoder.graph.get_parameter("bert.encoder.layer.0.output.dense.bias")
    with torch.no_grad():
        for values in (weight, bias):
            values.copy_(values[torch.arange(32) % distinct])


def test_more_groups_than_distinct_ranges_name_the_site_and_the_remedy() -> None:
    encoder = families.fresh("bert")
    _equal_channels(encoder, 4)
    override = Override(sites=("layers.0.ffn_output",), granularity=optimal(6, shared=False))
    asked = Recipe(name="r", weights=None, activations=None, overrides=(override,))
    with pytest.raises(
        SpecError,
        match=r"^per-group: 6 groups of optimal sizes asked for layers\.0\.ffn_output, whose channels have "
        r"4 distinct ranges; use at most 4, or add at_most: true$",
    ):
        quantize(encoder, asked, BATCHES)


def test_at_most_takes_as_many_groups_as_there_are_distinct_ranges(tmp_path: Path) -> None:
    encoder = families.fresh("bert")
    _equal_channels(encoder, 4)
    override = Override(sites=("layers.0.ffn_output",), granularity=optimal(6, shared=False, at_most=True))
    asked = Recipe(name="r", weights=None, activations=TensorSpec(), overrides=(override,))
    model = quantize(encoder, asked, BATCHES)
    assert model.quantizers["layers.0.ffn_output"].scale.shape == (4,)
    loaded = octavo.load(model.save(tmp_path / "model"))
    assert torch.equal(loaded(BATCHES[0])["logits"], model(BATCHES[0])["logits"])


@pytest.mark.parametrize("family", ["bert", "modernbert", "albert"])
def test_a_model_of_optimal_groups_is_loaded_to_the_bit(family: str, tmp_path: Path) -> None:
    encoder = families.fresh(family)
    model = quantize(encoder, octavo.recipe("int8-full"), BATCHES)
    loaded = octavo.load(model.save(tmp_path / "model"))
    assert isinstance(loaded, QuantizedEncoder) and loaded.recipe == model.recipe
    for name, quantizer in model.quantizers.items():
        assert torch.equal(loaded.quantizers[name].index, quantizer.index), name
    for output, value in model(BATCHES[0]).items():
        assert torch.equal(loaded(BATCHES[0])[output], value)
