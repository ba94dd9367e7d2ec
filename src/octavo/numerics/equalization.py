"""Equalization: by how much the channels of an activation are divided, and what rounding then costs.

Channels x_j are replaced by (x_j - z_j) / s_j and the weights that read them by w_j s_j. All vectors here are
(channels,).
"""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST = 1e-3
"""A channel that hardly moves keeps this much of its weight's column, so that noise is not blown up."""


def power_factors(ranges: Tensor, power: float) -> Tensor:
    """Return (range / largest range) ** power: 0 leaves channels as they are, 1 makes their ranges equal."""
    return _relative(ranges).pow(power).clamp(min=SMALLEST)


def smooth_factors(reach: Tensor, weights: Tensor, alpha: float) -> Tensor:
    """Return max|x| ** alpha / max|w| ** (1 - alpha), the largest of them 1 (SmoothQuant).

    `reach` is max|x| of every channel, `weights` max|w| of the column that reads it.
    """
    factors = _relative(reach).pow(alpha) / _relative(weights).clamp(min=SMALLEST).pow(1 - alpha)
    return _relative(factors).clamp(min=SMALLEST)


def threshold_factors(reach: Tensor, threshold: float) -> Tensor:
    """Return max(1, max|x| / threshold): only channels that reach past it are scaled (OS+, eq. 6)."""
    return (reach / threshold).clamp(min=1)


def threshold_at(reach: Tensor, share: float) -> float:
    """Return the threshold at a share of the way from the largest reach to the median's, in ratios."""
    largest = float(reach.max().clamp(min=torch.finfo(reach.dtype).tiny))
    middle = float(reach.median()) or largest
    return float(largest * (middle / largest) ** share)


def gamma_factors(gamma: Tensor) -> Tensor:
    """Return a norm's weight, its sign kept, none of it near zero (Outlier Suppression)."""
    floor = SMALLEST * gamma.abs().max().clamp(min=torch.finfo(gamma.dtype).tiny)
    return torch.where(gamma < 0, gamma.clamp(max=-floor), gamma.clamp(min=floor))


def centres(minimum: Tensor, maximum: Tensor) -> Tensor:
    """Return the middle of every channel's range (OS+, eq. 4)."""
    return (minimum + maximum) / 2


def relative_errors(found: Tensor, expected: Tensor, whole: Tensor) -> Tensor:
    """Return the mean over tokens of |found - expected|² / |whole|²; all are (tokens, outputs).

    A token's error counts against its own output, so that one token a thousand times larger than others does
    not decide; a token smaller than the median counts against the median.
    """
    size = whole.square().sum(1)
    return ((found - expected).square().sum(1) / size.clamp(min=size.median()).clamp(min=1e-30)).mean()


def _relative(values: Tensor) -> Tensor:
    return values / values.max().clamp(min=torch.finfo(values.dtype).tiny)
