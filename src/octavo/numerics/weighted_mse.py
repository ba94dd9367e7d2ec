"""Ranges of a weight whose error, input by input, counts by what the layer reads there.

A row w of a linear layer that is rounded to w_hat changes its output by (w_hat - w) x. With inputs taken as
uncorrelated, the mean square of that is the sum over inputs j of h_j (w_hat_j - w_j)^2, h_j the mean square
of x_j. The range of least error of w itself, all h_j alike, may clip a weight that reads an outlier.

Candidates are the range of all values times some shares, and the grid that is there already.
"""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.numerics.affine import Affine, affine_from_range, fake_quantize
from octavo.numerics.min_max import min_max

SHARES = 29
NARROWEST = 0.3


def weighted_mse_grid(
    weight: Tensor, importance: Tensor, index: Tensor, bits: int, symmetric: bool, start: Affine
) -> Affine:
    """Return the grid of least weighted squared error of every group of rows.

    Arguments:
        weight: (outputs, inputs); importance: h, (inputs,); index: the group of every row, (outputs,).
        start: the grids that are there, (groups,): they stay where nothing is better.
    """
    weight = weight.detach().float()
    importance = importance.to(weight)
    signed = start.low < 0
    low, high = min_max(weight, index, len(start.scale))
    scale, zero_point = start.scale.clone(), start.zero_point.clone()
    least = _errors(weight, importance, index, start)
    for share in torch.linspace(1, NARROWEST, SHARES).tolist():
        grid = affine_from_range(low * share, high * share, bits, symmetric, signed=signed)
        errors = _errors(weight, importance, index, grid)
        better = errors < least
        least = torch.where(better, errors, least)
        scale = torch.where(better, grid.scale, scale)
        zero_point = torch.where(better, grid.zero_point, zero_point)
    return Affine(scale=scale, zero_point=zero_point, low=start.low, high=start.high)


def _errors(weight: Tensor, importance: Tensor, index: Tensor, grid: Affine) -> Tensor:
    """Return the weighted squared error of every group, (groups,) in float64."""
    scale, zero_point = (each[index].unsqueeze(1) for each in (grid.scale, grid.zero_point))
    error = fake_quantize(weight, scale, zero_point, grid.low, grid.high).sub_(weight).square_()
    rows = (error @ importance).double()
    return rows.new_zeros(len(grid.scale)).index_add_(0, index, rows)
