from __future__ import annotations

from itertools import product

import pytest
import torch

import octavo
from octavo.errors import SpecError
from octavo.graph import QuantizedEncoder
from octavo.methods import quantize
from octavo.methods.allocation.budget import allocate_bits, assign
from octavo.spec import AverageBits, Megabytes, PerChannel, Recipe, TensorSpec
from octavo.spec.yaml import dump_recipe, parse_recipe
from tests.graph.families import batch, captured, fresh

DATA = [batch((3, 9)), batch((3, 9), seed=1)]


def layer_bits(recipe: Recipe) -> list[int]:
    found = [recipe.spec(f"layers.{n}.query.weight", "weight", "linear_weight") for n in range(2)]
    return [spec.bits for spec in found if spec is not None]


def test_the_greedy_choice_is_near_the_best_of_all() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        weights = torch.rand(5, generator=generator).tolist()
        costs = {f"layers.{n}": {b: w * 4.0**-b for b in (2, 3, 4, 8)} for n, w in enumerate(weights)}
        counts = dict.fromkeys(costs, 10)
        chosen = assign(costs, counts, allowed=10 * 5 * 4)
        assert sum(counts[name] * bits for name, bits in chosen.items()) <= 200
        best = min(
            sum(cost[b] for cost, b in zip(costs.values(), bits, strict=True))
            for bits in product((2, 3, 4, 8), repeat=5)
            if sum(bits) <= 20
        )
        assert sum(costs[name][bits] for name, bits in chosen.items()) <= 1.5 * best


def test_the_sensitive_layer_gets_more_bits() -> None:
    encoder = fresh("bert")
    with torch.no_grad():  # layer 0 adds so little to the stream that its weights hardly matter
        for site in encoder.weight_sites:
            if site.name.startswith("layers.0.") and site.role == "linear_weight":
                encoder.graph.get_parameter(site.targets[0]).mul_(1e-2)
    assert layer_bits(allocate_bits(encoder, DATA, AverageBits(bits=5), choices=(2, 8))) == [2, 8]


@pytest.mark.parametrize("bits", [2, 4.5])
def test_the_average_stays_within_the_budget(bits: float) -> None:
    _, encoder = captured("bert")
    found = layer_bits(allocate_bits(encoder, DATA, AverageBits(bits=bits)))
    assert sum(found) / 2 <= bits
    assert bits != 2 or found == [2, 2]


def test_megabytes_count_everything() -> None:
    _, encoder = captured("bert")
    base = octavo.recipe("qbert-w8a8")
    recipe = allocate_bits(encoder, DATA, Megabytes(size=0.0125), base=base)
    bits = 0
    for site in encoder.weight_sites:
        spec = recipe.spec(site.name, "weight", site.role)
        bits += torch.Size(site.shape).numel() * (32 if spec is None else spec.bits)  # type: ignore[arg-type]
    assert bits / 8e6 <= 0.0125
    assert layer_bits(recipe) != [2, 2]


def test_the_recipe_quantizes_and_survives_yaml() -> None:
    _, encoder = captured("bert")
    recipe = allocate_bits(encoder, DATA, AverageBits(bits=4))
    assert parse_recipe(dump_recipe(recipe)) == recipe
    model = quantize(encoder, recipe, DATA)
    assert isinstance(model, QuantizedEncoder)
    assert "logits.weight" not in model.quantizers and "layers.0.ffn_input.weight" not in model.quantizers


@pytest.mark.parametrize("name", ["qbert-w8a8", "qbert-w4a8"])
@pytest.mark.parametrize("head", ["encoder", "sequence-classification"])
def test_the_presets_run_on_narrow_matrices_and_without_a_head(name: str, head: octavo.graph.Head) -> None:
    _, encoder = captured("bert", head)
    model = quantize(encoder, octavo.recipe(name), DATA)
    assert model.quantizers["layers.0.ffn_hidden.weight"].scale.numel() == 64
    assert model.quantizers["layers.0.query.weight"].scale.numel() == 32


def test_a_budget_that_is_too_small_says_what_is_needed() -> None:
    _, encoder = captured("bert")
    with pytest.raises(
        SpecError, match=r"leaves .* MB for the layers of tiny bert, .* at 2 bits \(.* MB in all\); give"
    ):
        allocate_bits(encoder, DATA, AverageBits(bits=1.5))


def test_a_bare_number_is_no_budget() -> None:
    _, encoder = captured("bert")
    with pytest.raises(SpecError, match="budget must be AverageBits or Megabytes, got 4"):
        allocate_bits(encoder, DATA, 4)  # type: ignore[arg-type]


def test_a_base_without_matrices_is_an_error() -> None:
    _, encoder = captured("bert")
    base = Recipe(name="a8", weights=None, activations=TensorSpec(granularity=PerChannel(axis=0)))
    with pytest.raises(SpecError, match="'a8' quantizes no matrix in the layers of tiny bert"):
        allocate_bits(encoder, DATA, AverageBits(bits=4), base=base)
