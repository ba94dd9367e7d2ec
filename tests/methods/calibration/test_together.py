from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from octavo.graph import Encoder, QuantizedEncoder
from octavo.methods import quantize
from octavo.methods.pipeline import quantize_together
from octavo.spec import PerGroup
from octavo.spec.presets import recipe
from tests.graph import families

NAMES = ("w8a8", "w8a8-mp", "w8a8-peg3", "w8a8-per-embedding", "w32a8", "w8a32", "q8bert", "int8-full")
BATCHES = [families.batch((3, 12), padded=True, seed=seed) for seed in range(5)]


@pytest.fixture(scope="module")
def bert() -> Encoder:
    return families.captured("bert")[1]


@pytest.fixture(scope="module")
def together(bert: Encoder) -> dict[str, QuantizedEncoder]:
    models = quantize_together(bert, [recipe(name) for name in NAMES], BATCHES)
    return dict(zip(NAMES, models, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_each_model_is_what_it_would_be_alone(
    bert: Encoder, together: dict[str, QuantizedEncoder], name: str
) -> None:
    alone, batch = quantize(bert, recipe(name), BATCHES), families.batch((4, 10), padded=True, seed=9)
    assert torch.equal(together[name](batch)["logits"], alone(batch)["logits"])
    for site, quantizer in alone.quantizers.items():
        assert torch.equal(quantizer.scale, together[name].quantizers[site].scale), site
        assert torch.equal(quantizer.index, together[name].quantizers[site].index), site


def test_groups_of_optimal_sizes_are_found_together(bert: Encoder) -> None:
    """Recipes with one kind of weights, so that they do share the passes, and groups of different kinds."""
    preset = recipe("w8a8-peg3")
    kinds = [
        PerGroup(groups=3, permute=True),
        PerGroup(groups=3, permute=True, sizes="optimal"),
        PerGroup(groups=4, permute=True, shared=False, sizes="optimal"),
    ]
    recipes = [replace(preset, overrides=(replace(preset.overrides[0], granularity=kind),)) for kind in kinds]
    for one, other in zip(recipes, quantize_together(bert, recipes, BATCHES), strict=True):
        for site, quantizer in quantize(bert, one, BATCHES).quantizers.items():
            assert torch.equal(quantizer.index, other.quantizers[site].index), site
            assert torch.equal(quantizer.scale, other.quantizers[site].scale), site


def test_recipes_with_the_same_weights_share_the_passes(
    bert: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    run = Encoder.__call__

    def counting(self: Encoder, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        calls.append("pass")
        return run(self, batch)

    monkeypatch.setattr(Encoder, "__call__", counting)
    quantize(bert, recipe("w8a8"), BATCHES)
    alone = len(calls)
    quantize_together(bert, [recipe(name) for name in ("w8a8", "w8a8-mp", "w8a8-per-embedding")], BATCHES)
    assert len(calls) == 2 * alone
