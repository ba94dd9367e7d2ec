from __future__ import annotations

from dataclasses import replace

import pytest

from octavo.graph import Encoder
from octavo.methods import quantize
from octavo.methods.calibration.permutation import extra_parameters
from octavo.spec import PerGroup
from octavo.spec.presets import recipe
from tests.graph import families

BATCHES = [families.batch((2, 9), seed=seed) for seed in range(2)]
LAYERS, WIDTH = 2, 32


@pytest.fixture(scope="module")
def bert() -> Encoder:
    return families.captured("bert")[1]


@pytest.mark.parametrize(
    ("name", "a_layer"),
    [
        ("w8a8", 0),
        ("w8a8-peg3", WIDTH + 2 * 3 * 3),
        ("w8a8-peg6", WIDTH + 2 * 3 * 6),
        ("w8a8-peg6-noperm", 2 * 3 * 6),
        ("w8a8-per-embedding", 2 * 3 * WIDTH),
    ],
)
def test_the_papers_count(bert: Encoder, name: str, a_layer: int) -> None:
    assert extra_parameters(quantize(bert, recipe(name), BATCHES)) == LAYERS * a_layer


def test_permutations_that_are_not_shared_count_each(bert: Encoder) -> None:
    preset = recipe("w8a8-peg6")
    own = PerGroup(groups=6, permute=True, shared=False)
    changed = replace(preset, overrides=(replace(preset.overrides[0], granularity=own),))
    assert extra_parameters(quantize(bert, changed, BATCHES)) == LAYERS * 3 * (WIDTH + 2 * 6)


@pytest.mark.parametrize(("shared", "orders"), [(True, 1), (False, 3)], ids=["shared", "own"])
def test_optimal_sizes_cost_no_more_than_even_ones(bert: Encoder, shared: bool, orders: int) -> None:
    preset = recipe("w8a8-peg6")
    optimal = PerGroup(groups=6, permute=True, shared=shared, sizes="optimal")
    changed = replace(preset, overrides=(replace(preset.overrides[0], granularity=optimal),))
    assert extra_parameters(quantize(bert, changed, BATCHES)) == LAYERS * (orders * WIDTH + 2 * 3 * 6)
