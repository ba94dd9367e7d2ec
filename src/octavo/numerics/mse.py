"""Ranges of least squared error, searched on a histogram instead of the data.

With the density taken as uniform in each bin, the squared error of a grid integrates in closed form. In units
of the scale, with n the grid integer that t is rounded and clipped to, the integral of (t - n)^2 up to t is

    F(t) = n / 12 + (t - n)^3 / 3,

which holds inside the grid (rounding) and outside (clipping) alike. So the error of a candidate is one row of
F-differences times the counts, and one matrix product gives the error of all candidates for all groups.

A candidate is a pair (scale, zero-point). The zero-point is fixed, and the search 1-D, when the grid is
symmetric or the data lies on one side of 0; otherwise range and shift are both searched, as in the paper. The
pair of min-max is always among the candidates, and wins ties.

A value is nowhere further than the width w of a bin from where the search takes it to be, and its distance to
a grid changes by no more than that. So on the data itself the root of the mean squared error is at most 2 w
above that of min-max.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.numerics.affine import integer_bounds
from octavo.numerics.histogram import DEFAULT_BINS, Histogram, default_bins, power_of_two
from octavo.numerics.min_max import Range, count_groups

SHIFTS = 33  # zero-points of the first pass of a 2-D search
COARSE_BINS = 1024  # bins of that pass, which scores every pair of a scale and a zero-point
POINTS = 9  # scales, and zero-points, of a finer pass
THINNEST = 2.0**-20  # kept beside the ends of the data, so that a bin with a single value has a width
ADDED = 2  # bins, one for each end of the data
WORKING_SET = 2**18  # float64 numbers per temporary of a finer pass: 2 MB, small enough for a cache
GROUPS_AT_ONCE = 4096  # groups whose histograms exist at the same time


@dataclass(frozen=True, eq=False)
class Data:
    """Histograms scaled to R = 1: counts (groups, bins) over [-1, 1), exact minima and maxima (groups,)."""

    counts: Tensor
    minimum: Tensor
    maximum: Tensor

    def select(self, groups: Tensor | slice) -> Data:
        """Return the data of some of the groups."""
        return Data(self.counts[groups], self.minimum[groups], self.maximum[groups])

    def edges(self) -> Tensor:
        """Return the edges, (groups, bins + 1), of the bins of `ends_apart`."""
        bins = self.counts.shape[1] - ADDED
        low, high = self.minimum.unsqueeze(1), self.maximum.unsqueeze(1)
        inner = _even_edges(bins, self.counts).clamp_min(low + THINNEST).clamp_max_(high - THINNEST)
        return torch.cat([low - THINNEST, inner, high + THINNEST], dim=1)

    def ends_apart(self) -> Data:
        """Return the data with what is counted beside an end put at that end, into a thin bin of its own.

        A value that lies alone, far out, is exactly the minimum or the maximum. Spread over its bin, it would
        draw the range in by half a bin, which outweighs all the rest when the bins are wide.
        """
        half = self.counts.shape[1] // 2
        counts = torch.nn.functional.pad(self.counts, (1, 1))
        ends = torch.stack([self.minimum, self.maximum], dim=1)
        beside = (ends * half).floor().long() + half + 1
        # Where all lies in one bin, it is put at the end that is further from 0.
        taken = (beside[:, :1] != beside[:, 1:]) | torch.stack([ends[:, 1] <= 0, ends[:, 1] > 0], dim=1)
        counts[:, [0, -1]] = counts.gather(1, beside) * taken
        return Data(counts.scatter_(1, beside, 0.0), self.minimum, self.maximum)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What the groups of a search share: `steps`, the zero-points to try first, and the span of integers.

    `span` is the number of steps that the full range is divided into, `reach` that range for R = 1.
    """

    steps: int
    zero_points: tuple[int, ...]
    span: int
    reach: float


def mse_range(
    x: Tensor,
    index: Tensor,
    bits: int,
    symmetric: bool,
    candidates: int = 100,
    importance: Tensor | None = None,
) -> Range:
    """Return the range of least squared error of every group of `x`, (channels, members).

    `importance`, (channels,), weighs the squared errors of the channels; it matters where they share a group.
    With the squared norms of the columns of the matrix that reads `x`, the search minimises the expected
    squared error of the product, as far as errors of different channels are uncorrelated.
    """
    groups = count_groups(index)
    signed = x.numel() > 0 and bool(x.amin() < 0)
    members = x.numel() // groups
    bins = min(default_bins(groups), max(256, 1 << members.bit_length()), DEFAULT_BINS)
    parts = []
    for first in range(0, groups, GROUPS_AT_ONCE):
        chosen = (index >= first) & (index < first + GROUPS_AT_ONCE)
        some = None if importance is None else importance[chosen]
        histogram = Histogram(index[chosen] - first, bins, some)
        histogram.observe(x if groups <= GROUPS_AT_ONCE else x[chosen.to(x.device)])
        parts.append(mse_of_histogram(histogram, bits, symmetric, candidates, signed))
    return torch.cat([low for low, _ in parts]), torch.cat([high for _, high in parts])


def mse_of_histogram(
    histogram: Histogram, bits: int, symmetric: bool, candidates: int = 100, signed: bool | None = None
) -> Range:
    """Return the range of least squared error of every group, (groups,) each.

    `candidates` ranges are scored, then finer ones around the best and, beside them, the full one, so that
    min-max is never better on the histogram. `signed` says whether a symmetric grid has negative integers; by
    default it has if any minimum is negative.
    """
    histogram.require_data()
    if signed is None:
        signed = bool((histogram.minimum < 0).any())
    low, high = integer_bounds(bits, symmetric, signed)
    unit = power_of_two(histogram.exponent)
    data = Data(histogram.counts.double(), histogram.minimum / unit, histogram.maximum / unit)
    scale, zero_point = torch.zeros_like(unit), torch.zeros_like(unit)
    for grid, groups in _grids(data, low, high, symmetric):
        if bool(groups.any()):
            scale[groups], zero_point[groups] = _search(data.select(groups), grid, candidates)
    scale = scale * unit
    if symmetric:
        return (-scale * (high if signed else 0)).float(), (scale * high).float()
    # Half a step beyond the largest numbers of float32 there is only infinity.
    largest = torch.finfo(torch.float32).max
    minimum, maximum = -scale * zero_point, scale * (high - zero_point)
    return minimum.clamp(min=-largest).float(), maximum.clamp(max=largest).float()


def _grids(data: Data, low: int, high: int, symmetric: bool) -> list[tuple[Grid, Tensor]]:
    """Return each kind of search with a mask (groups,) of the groups that need it."""
    steps = high - low
    if symmetric:
        everything = torch.ones_like(data.minimum, dtype=torch.bool)
        return [(Grid(steps=steps, zero_points=(-low,), span=high, reach=1.0), everything)]
    shifts = torch.linspace(0, steps, min(SHIFTS, steps + 1), dtype=torch.float64).round().int().tolist()
    positive = data.minimum >= 0
    negative = (data.maximum <= 0) & ~positive
    return [
        (Grid(steps=steps, zero_points=(0,), span=steps, reach=1.0), positive),
        (Grid(steps=steps, zero_points=(steps,), span=steps, reach=1.0), negative),
        (Grid(steps=steps, zero_points=tuple(shifts), span=steps, reach=2.0), ~(positive | negative)),
    ]


def _search(data: Data, grid: Grid, candidates: int) -> Range:
    """Return the best scale and zero-point of every group, (groups,) each; never worse than min-max's."""
    scale, zero_point = _first_pass(data.counts, grid, candidates)
    window = grid.reach / grid.span / candidates
    shift_window = grid.steps / (len(grid.zero_points) - 1) if len(grid.zero_points) > 1 else 0.0
    full = _full_range(data, grid)
    data = data.ends_apart()
    passes = 0
    while passes < 2 or shift_window >= 1:
        scales, shifts = _around(scale, zero_point, window, shift_window, grid.steps)
        # First, so that a tie leaves the full range.
        pairs = torch.column_stack([full[0], scales]), torch.column_stack([full[1], shifts])
        scale, zero_point = _best_pair(data, *pairs, grid.steps)
        window, shift_window = window * 2 / (POINTS - 1), shift_window * 2 / (POINTS - 1)
        passes += 1
    # A group of zeros has no scale: every grid is right.
    return torch.where((data.minimum < 0) | (data.maximum > 0), scale, 0.0), zero_point


def _full_range(data: Data, grid: Grid) -> Range:
    """Return scale and zero-point, (groups,) each, of the grid over all of the data, as min-max has them."""
    low, high = data.minimum.clamp(max=0), data.maximum.clamp(min=0)
    if len(grid.zero_points) == 1:
        scale = torch.maximum(-low, high) / grid.span
        scale = torch.where(scale > 0, scale, 1.0)
        return scale, torch.full_like(scale, grid.zero_points[0])
    scale = (high - low) / grid.span
    return scale, (-low / scale).round()


def _first_pass(counts: Tensor, grid: Grid, candidates: int) -> Range:
    """Return the best of `candidates` scales times the grid's zero-points, the same pairs for every group."""
    if len(grid.zero_points) > 1 and counts.shape[1] > COARSE_BINS:
        counts = counts.reshape(len(counts), COARSE_BINS, -1).sum(dim=2)
    edges = _even_edges(counts.shape[1], counts)
    # From wide to narrow, so that a tie leaves the wider range.
    sizes = torch.linspace(1, 1 / candidates, candidates, dtype=torch.float64, device=counts.device)
    scales = sizes * grid.reach / grid.span
    best = torch.full_like(counts[:, 0], torch.inf)
    scale, zero_point = torch.zeros_like(best), torch.zeros_like(best)
    for shift in grid.zero_points:
        errors = bin_errors(edges, scales, torch.full_like(scales, shift), grid.steps)
        error, choice = (counts @ errors.T).min(dim=1)
        better = error < best
        best = torch.where(better, error, best)
        scale = torch.where(better, scales[choice], scale)
        zero_point = torch.where(better, shift, zero_point)
    return scale, zero_point


def _around(
    scale: Tensor, zero_point: Tensor, window: float, shift_window: float, steps: int
) -> tuple[Tensor, Tensor]:
    """Return all pairs of scales and zero-points near those given, (groups, pairs) each, they among them."""
    offsets = torch.linspace(1, -1, POINTS, dtype=torch.float64, device=scale.device)
    scale, shifts = scale.unsqueeze(1), zero_point.unsqueeze(1)
    scales = (scale + offsets * window).maximum(scale / POINTS)
    if shift_window:
        shifts = (shifts + offsets * shift_window).round().clamp(0, steps)
    return scales.repeat_interleave(shifts.shape[1], dim=1), shifts.repeat(1, POINTS)


def _best_pair(data: Data, scales: Tensor, shifts: Tensor, steps: int) -> Range:
    """Return scale and zero-point of least error, (groups,), among each group's own pairs (groups, pairs)."""
    choices = []
    size = max(1, WORKING_SET // (scales.shape[1] * data.counts.shape[1]))
    for first in range(0, len(scales), size):
        part = slice(first, first + size)
        some = data.select(part)
        errors = bin_errors(some.edges().unsqueeze(1), scales[part], shifts[part], steps)
        # Smaller errors come from the width of the bins at the ends: such grids are equally exact, and the
        # first of them is taken.
        exact = THINNEST**2 * some.counts.sum(dim=1).view(-1, 1, 1)
        choices.append((errors @ some.counts.unsqueeze(2)).maximum(exact).argmin(dim=1))
    choice = torch.cat(choices)
    return scales.gather(1, choice).squeeze(1), shifts.gather(1, choice).squeeze(1)


def bin_errors(edges: Tensor, scale: Tensor, zero_point: Tensor, steps: int) -> Tensor:
    """Return the mean squared error within each bin, (..., bins), of grids (...).

    A grid has the points scale * n for the integers -zero_point <= n <= steps - zero_point. The edges,
    (bins + 1,) or with leading dimensions that broadcast against the grids, do not decrease; the error of a
    bin without width is 0.
    """
    scale, zero_point = scale.unsqueeze(-1), zero_point.unsqueeze(-1)
    t = edges / scale
    n = t.round().clamp_min_(-zero_point).clamp_max_(steps - zero_point)
    f = t.sub_(n)
    integral = (f * f).mul_(f).mul_(4).add_(n).div_(12)
    width = edges.diff(dim=-1).clamp_min_(torch.finfo(torch.float64).tiny)
    return integral.diff(dim=-1).mul_(scale**3).div_(width)


def _even_edges(bins: int, like: Tensor) -> Tensor:
    return torch.linspace(-1, 1, bins + 1, dtype=torch.float64, device=like.device)
