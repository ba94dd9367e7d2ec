"""Outliers put into a model without changing what it computes: groups sorted by range keep them apart."""

from __future__ import annotations

import pytest
import torch

from octavo.graph import Encoder
from octavo.methods import quantize
from octavo.spec import AllMinMax, Override, PerGroup, Recipe, TensorSpec
from tests.graph import families

BATCHES = [families.batch((4, 12), seed=seed) for seed in range(6)]
SPREAD = (3, 11, 20, 29)  # one in each of four groups of eight
TIMES = 60.0


@pytest.fixture(scope="module")
def original() -> Encoder:
    return families.captured("roberta-prelayernorm", "encoder")[1]


@pytest.fixture(scope="module")
def injected() -> Encoder:
    """The same model with channels of the norms before the FFNs scaled up and the weights after them down."""
    encoder = families.fresh("roberta-prelayernorm", "encoder")
    sites = {site.name: site.targets[0] for site in encoder.weight_sites}
    with torch.no_grad():
        for layer in range(2):
            norm = sites[f"layers.{layer}.ffn_input.weight"]
            for path in (norm, norm.removesuffix("weight") + "bias"):
                encoder.graph.get_parameter(path)[list(SPREAD)] *= TIMES
            encoder.graph.get_parameter(sites[f"layers.{layer}.ffn_hidden.weight"])[:, list(SPREAD)] /= TIMES
    return encoder


def output(encoder: Encoder) -> torch.Tensor:
    return encoder(families.batch((8, 16), seed=9))["last_hidden_state"]


def error(encoder: Encoder, groups: int, permute: bool) -> float:
    made = Recipe(
        name="peg",
        weights=None,
        activations=None,
        overrides=(
            Override(
                sites=("layers.*.ffn_input",),
                granularity=PerGroup(groups=groups, permute=permute),
                estimator=AllMinMax(),
                bits=TensorSpec().bits,
            ),
        ),
    )
    return float((output(quantize(encoder, made, BATCHES)) - output(encoder)).square().mean())


def test_the_injection_leaves_float_outputs_as_they_are(original: Encoder, injected: Encoder) -> None:
    torch.testing.assert_close(output(injected), output(original), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("groups", [2, 4, 8])
def test_permuted_groups_beat_unpermuted_ones(injected: Encoder, groups: int) -> None:
    assert error(injected, groups, permute=True) < 0.5 * error(injected, groups, permute=False)


@pytest.mark.parametrize("groups", [1, 32])
def test_a_permutation_changes_nothing_for_one_group_or_one_a_dimension(
    injected: Encoder, groups: int
) -> None:
    assert error(injected, groups, permute=True) == error(injected, groups, permute=False)
