"""Groups of channels of least quantization noise, when their sizes may differ.

The noise of a group grows with the square of its scale, and so of its range. With the channels in an order,
and groups that are runs of it, the best cut into K groups minimises

    sum over groups of   size * (largest maximum - smallest minimum)^2,

summed over the tensors as well where several are cut alike: the sum x + h has the groups of x and of h. The
best cost of the first j channels in k groups extends the best of the first i < j in k - 1, so dynamic
programming over j finds the optimum exactly, in (K + tensors) n^2 / 2 additions.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.errors import SpecError
from octavo.numerics.min_max import NotFiniteError

Floats = NDArray[np.float64]


def distinct_ranges(minimum: Tensor, maximum: Tensor) -> int:
    """Return how many different ranges the channels have: the most groups of any use.

    Arguments:
        minimum, maximum: (channels,) each, or (tensors, channels) where several tensors are cut alike.
    """
    return len(torch.unique(torch.cat(_covering_zero(minimum, maximum)), dim=1).T)


def optimal_groups(minimum: Tensor, maximum: Tensor, groups: int) -> Tensor:
    """Return the group of every channel, (channels,) int64, in the channels' own order.

    Arguments:
        minimum, maximum: range of every channel, (channels,) each, or (tensors, channels) where several
            tensors are cut alike, each in units in which their noise counts alike. As in every grid, 0 is
            made part of it.
        groups: how many groups to make, none of them empty; at most `distinct_ranges`.

    Channels are cut in the order of their noise alone, summed over the tensors: for one tensor that of their
    ranges. Group 0 has the narrowest. Equal costs go to the cut with the smaller groups first.

    Example:
        >>> optimal_groups(torch.tensor([-1.0, -9.0, -1.1]), torch.tensor([1.0, 9.0, 1.1]), 2).tolist()
        [0, 1, 0]
    """
    low, high = (end.numpy() for end in _covering_zero(minimum, maximum))
    distinct = distinct_ranges(minimum, maximum)
    if not 1 <= groups <= distinct:
        raise SpecError(
            f"{groups} groups were asked for over channels of {distinct} distinct ranges; "
            f"use 1 to {distinct}."
        )
    noise = np.square(high - low).sum(axis=0)
    # Equal noise by the ranges, so that equal channels are neighbours.
    order = np.lexsort((*low[::-1], *high[::-1], noise))
    index = np.empty(low.shape[1], dtype=np.int64)
    index[order] = np.repeat(np.arange(groups), _sizes(low[:, order], high[:, order], groups))
    return torch.from_numpy(index)


def _covering_zero(minimum: Tensor, maximum: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ranges (tensors, channels) in float64 on the CPU, widened to contain 0."""
    if minimum.ndim not in (1, 2) or minimum.shape != maximum.shape or not minimum.numel():
        raise SpecError(
            f"minima of shape {tuple(minimum.shape)} and maxima of shape {tuple(maximum.shape)} were given; "
            "give one of each for every channel, (channels,) or (tensors, channels)."
        )
    minimum, maximum = (end.detach().double().cpu().reshape(-1, end.shape[-1]) for end in (minimum, maximum))
    if not bool(torch.isfinite(minimum).all() & torch.isfinite(maximum).all()):
        raise NotFiniteError
    return minimum.clamp(max=0), maximum.clamp(min=0)


def _sizes(low: Floats, high: Floats, groups: int) -> NDArray[np.int64]:
    """Return the sizes (groups,) of the best runs of channels in this order; ends are (tensors, channels)."""
    n = low.shape[1]
    # best[k, j]: the least cost of the first j channels in k groups; cut[k, j]: where the last group starts.
    best = np.full((groups + 1, n + 1), np.inf)
    best[0, 0] = 0.0
    cut = np.zeros((groups + 1, n + 1), dtype=np.int64)
    # Ends and sizes of the runs that start at each channel and end at the current one.
    bottom, top = low.copy(), high.copy()
    size = np.arange(n, 0, -1, dtype=np.float64)
    layers = np.arange(groups)
    for j in range(1, n + 1):
        np.minimum(bottom[:, :j], low[:, j - 1, None], out=bottom[:, :j])
        np.maximum(top[:, :j], high[:, j - 1, None], out=top[:, :j])
        extent = top[:, :j] - bottom[:, :j]
        cost = best[:groups, :j] + (extent * extent).sum(axis=0) * size[n - j :]
        cut[1:, j] = cost.argmin(axis=1)
        best[1:, j] = cost[layers, cut[1:, j]]
    ends = [n]
    for k in range(groups, 0, -1):
        ends.append(int(cut[k, ends[-1]]))
    return np.diff(ends[::-1])
