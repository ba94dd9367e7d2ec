"""Moments of a stream of numbers in constant memory: the updates of Pébay (2008), in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

# Chunks bound the memory of the float64 copies: attention scores of a long text are large.
_CHUNK = 2**20


@dataclass
class RunningMoments:
    """Count, range, mean and central moment sums M2, M3, M4 of everything added so far."""

    count: int = 0
    minimum: float = float("inf")
    maximum: float = float("-inf")
    mean: float = 0.0
    m2: float = 0.0
    m3: float = 0.0
    m4: float = 0.0

    def add(self, x: Tensor) -> None:
        """Add every element of a tensor of any shape."""
        for chunk in x.reshape(-1).split(_CHUNK):
            if chunk.numel():
                self.merge(_of(chunk))

    def merge(self, other: RunningMoments) -> None:
        """Add what another one has seen."""
        if other.count == 0:
            return
        a, b = self.count, other.count
        n = a + b
        delta = other.mean - self.mean
        m2, m3, m4 = self.m2 + other.m2, self.m3 + other.m3, self.m4 + other.m4
        m2 += delta**2 * a * b / n
        m3 += delta**3 * a * b * (a - b) / n**2 + 3 * delta * (a * other.m2 - b * self.m2) / n
        m4 += delta**4 * a * b * (a * a - a * b + b * b) / n**3
        m4 += 6 * delta**2 * (a * a * other.m2 + b * b * self.m2) / n**2
        m4 += 4 * delta * (a * other.m3 - b * self.m3) / n
        self.mean += delta * b / n
        self.count, self.m2, self.m3, self.m4 = n, m2, m3, m4
        self.minimum, self.maximum = min(self.minimum, other.minimum), max(self.maximum, other.maximum)

    @property
    def std(self) -> float:
        """Standard deviation."""
        return (self.m2 / self.count) ** 0.5 if self.count else 0.0

    @property
    def kurtosis(self) -> float:
        """Fourth standardised moment; 3 for a normal distribution, 0 by convention where nothing varies."""
        return self.count * self.m4 / self.m2**2 if self.m2 > 0 else 0.0


def _of(chunk: Tensor) -> RunningMoments:
    x = chunk.double()
    mean = x.mean()
    centred = x - mean
    square = centred.square()
    sums = (mean, square.sum(), (square * centred).sum(), square.square().sum(), x.min(), x.max())
    # one transfer from the device for all six
    mean_, m2, m3, m4, low, high = torch.stack(sums).tolist()
    return RunningMoments(count=x.numel(), minimum=low, maximum=high, mean=mean_, m2=m2, m3=m3, m4=m4)
