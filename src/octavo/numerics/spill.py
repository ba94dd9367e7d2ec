"""Saturating pieces: a long range as several short ones, each on the same fine grid.

With a grid from `low` to `high`, R wide, every number v is a sum of clipped copies of itself,

    v = clip(v) + (clip(v - R) - low) + (clip(v - 2R) - low) + ... + (clip(v + R) - high) + ...,

because a copy whose turn has not come rests at the end of the grid that is subtracted. All copies but one are
at an end, which the grid holds exactly, so v is rounded as finely as if the grid were all the range there is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.numerics.affine import SMALLEST_SCALE, integer_bounds

_HALVINGS = 40


@dataclass(frozen=True, kw_only=True, eq=False)
class Pieces:
    """How channels are cut: the grid's ends, and an entry for every extra channel.

    Attributes:
        low, high: ends of the grid.
        source: (extra,) the channel that each extra one is a copy of.
        offset: (extra,) what is subtracted from the copy before it is clipped, a multiple of `high - low`.
        rest: (extra,) where the copy rests, `low` or `high`.
    """

    low: float
    high: float
    source: Tensor
    offset: Tensor
    rest: Tensor


def smallest_range(
    minimum: Tensor, maximum: Tensor, extra: int, bits: int, symmetric: bool = False
) -> Pieces | None:
    """Return the pieces with the smallest range that at most `extra` more channels allow.

    Arguments:
        minimum, maximum: range of every channel, (channels,) each; 0 is made part of it.
        bits, symmetric: the grid that the pieces will share; its ends are grid points.

    None where too little is won: the range does not get smaller by sqrt(2), so that the noise does not halve.
    """
    minimum, maximum = minimum.double().cpu().clamp(max=0), maximum.double().cpu().clamp(min=0)
    reach = float(torch.maximum(maximum.max(), -minimum.min()))
    if reach < SMALLEST_SCALE:
        return None
    whole = _ends(minimum, maximum, reach, bits, symmetric)
    below, above = 0.0, reach
    for _ in range(_HALVINGS):
        middle = (below + above) / 2
        if (
            middle > 0
            and _count(minimum, maximum, *_ends(minimum, maximum, middle, bits, symmetric)) <= extra
        ):
            above = middle
        else:
            below = middle
    low, high = _ends(minimum, maximum, above, bits, symmetric)
    if (high - low) ** 2 > (whole[1] - whole[0]) ** 2 / 2:
        return None
    return _pieces(minimum, maximum, low, high)


def _ends(minimum: Tensor, maximum: Tensor, reach: float, bits: int, symmetric: bool) -> tuple[float, float]:
    """Return the ends of the grid over what lies within `reach` of 0, both of them grid points.

    The zero-point is rounded up: an activation function's lowest value, that all channels have stays inside.
    """
    bottom, top = max(float(minimum.min()), -reach), min(float(maximum.max()), reach)
    low, high = integer_bounds(bits, symmetric, signed=bottom < 0)
    scale = max(-bottom, top) / high if symmetric else (top - bottom) / (high - low)
    zero_point = 0 if symmetric else math.ceil(-bottom / scale - 1e-6)
    return (low - zero_point) * scale, (high - zero_point) * scale


def _copies(minimum: Tensor, maximum: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Return how many copies each channel needs above and below the grid, (channels,) each."""
    # A hundredth of a step beyond the end is rounding of the ends themselves.
    width, slack = high - low, 1e-5 * (high - low)
    above, below = ((maximum - high - slack) / width).ceil(), ((low - minimum - slack) / width).ceil()
    return above.clamp(min=0).long(), below.clamp(min=0).long()


def _count(minimum: Tensor, maximum: Tensor, low: float, high: float) -> int:
    above, below = _copies(minimum, maximum, low, high)
    return int(above.sum() + below.sum())


def _pieces(minimum: Tensor, maximum: Tensor, low: float, high: float) -> Pieces:
    source: list[int] = []
    offset: list[float] = []
    rest: list[float] = []
    for copies, sign, end in zip(_copies(minimum, maximum, low, high), (1, -1), (low, high), strict=True):
        for channel in copies.nonzero().flatten().tolist():
            for turn in range(1, int(copies[channel]) + 1):
                source.append(channel)
                offset.append(sign * turn * (high - low))
                rest.append(end)
    numbers = [torch.tensor(values, dtype=torch.float64) for values in (offset, rest)]
    return Pieces(
        low=low,
        high=high,
        source=torch.tensor(source, dtype=torch.long),
        offset=numbers[0],
        rest=numbers[1],
    )
