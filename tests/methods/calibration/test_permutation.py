from __future__ import annotations

import pytest
import torch
from torch import Tensor

from octavo.errors import CalibrationError
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
