"""Smallest and largest member of every group: what all estimators start from."""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.errors import CalibrationError

Range = tuple[Tensor, Tensor]
"""The minima and maxima of the groups, (groups,) each."""

NOT_FINITE = "the data holds NaN or infinity; look for the first site that produces it."
NO_DATA = "the range estimator saw no data; calibrate with at least one batch."


class NotFiniteError(CalibrationError):
    """Raised where a range is asked for of data that holds NaN or infinity."""

    def __init__(self, message: str = NOT_FINITE) -> None:
        super().__init__(message)  # given again where a process hands the error to another

    @staticmethod
    def at(site: str) -> CalibrationError:
        """Return the error that names the site."""
        return CalibrationError(f"{site} holds NaN or infinity; no range can be found for it")


def count_groups(index: Tensor) -> int:
    """Return the number of groups that an index (channels,) names."""
    return 1 if len(index) == 1 else int(index.max()) + 1


def min_max(x: Tensor, index: Tensor, groups: int) -> Range:
    """Return the float32 range of each group of `x`, (channels, members), neither 0; NaN is passed on."""
    low, high = channel_min_max(x)
    index = index.to(x.device)
    minimum = low.new_full((groups,), torch.inf).scatter_reduce_(0, index, low, "amin")
    maximum = high.new_full((groups,), -torch.inf).scatter_reduce_(0, index, high, "amax")
    return minimum, maximum


def channel_min_max(x: Tensor) -> Range:
    """Return the float32 range of each channel of `x`, (channels, members)."""
    # Not torch.aminmax: along a dimension it is not vectorised on the CPU and takes over ten times as long.
    return x.amin(dim=1).float(), x.amax(dim=1).float()


def stand_apart(index: Tensor) -> bool:
    """Return whether every channel is a group of its own, in their order."""
    return len(index) == 1 or torch.equal(index, torch.arange(len(index), device=index.device))


def widen(first: Range | None, second: Range) -> Range:
    """Return the smallest ranges that contain both."""
    if first is None:
        return second
    return torch.minimum(first[0], second[0]), torch.maximum(first[1], second[1])
