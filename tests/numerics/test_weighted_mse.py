from __future__ import annotations

import pytest
import torch
from torch import Tensor

from octavo.numerics.affine import Affine, affine_from_range, fake_quantize
from octavo.numerics.weighted_mse import weighted_mse_grid


def errors(weight: Tensor, importance: Tensor, grid: Affine) -> Tensor:
    """Return the weighted squared error of every row in float64, by the definition."""
    on_grid = fake_quantize(weight, grid.scale[:, None], grid.zero_point[:, None], grid.low, grid.high)
    return ((on_grid - weight).double().square() * importance.double()).sum(1)


def plain(weight: Tensor, symmetric: bool, share: float = 1.0) -> Affine:
    low, high = weight.amin(1) * share, weight.amax(1) * share
    return affine_from_range(low, high, 4, symmetric, signed=True if symmetric else None)


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "asymmetric"])
def test_no_row_is_worse_than_on_the_grid_it_had_or_over_its_whole_range(symmetric: bool) -> None:
    weight = torch.randn(40, 96, generator=torch.Generator().manual_seed(0))
    importance = torch.rand(96, generator=torch.Generator().manual_seed(1)) ** 8
    start = plain(weight, symmetric, 0.55)
    found = weighted_mse_grid(weight, importance, torch.arange(40), 4, symmetric, start)
    assert (found.low, found.high) == (start.low, start.high)
    found_errors = errors(weight, importance, found)
    assert bool((found_errors <= errors(weight, importance, start) * (1 + 1e-5)).all())
    assert bool((found_errors <= errors(weight, importance, plain(weight, symmetric)) * (1 + 1e-5)).all())
    assert float(found_errors.sum()) < 0.9 * float(errors(weight, importance, start).sum())


def test_a_weight_that_reads_an_outlier_is_not_clipped() -> None:
    """By hand: 98 small weights want the range 0.3; the large one, with all the importance, wants 1."""
    weight = torch.full((1, 99), 0.1)
    weight[0, 0] = 1.0
    importance = torch.full((99,), 1e-6)
    importance[0] = 1.0
    start = plain(weight, True, 0.3)
    found = weighted_mse_grid(weight, importance, torch.zeros(1, dtype=torch.long), 4, True, start)
    assert float(found.scale) == pytest.approx(1 / 7)
    even = weighted_mse_grid(weight, torch.ones(99), torch.zeros(1, dtype=torch.long), 4, True, start)
    assert float(even.scale) < 1 / 7


def test_rows_of_one_group_share_a_grid() -> None:
    weight = torch.tensor([[7.0, -3.0], [1.0, 2.0], [0.7, 0.1]])
    index = torch.tensor([0, 0, 1])
    start = affine_from_range(torch.tensor([-3.0, 0.1]), torch.tensor([7.0, 0.7]), 4, True, signed=True)
    found = weighted_mse_grid(weight, torch.ones(2), index, 4, True, start)
    assert found.scale.tolist() == pytest.approx([1.0, 0.1])  # integers, and tenths: exact
