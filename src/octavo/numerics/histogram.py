"""A streaming histogram per group that does not depend on how the data was cut into batches.

Group g counts over [-R, R), R = 2^exponent[g], in bins of equal width. R is the smallest power of two above
every magnitude seen. When it must double, the bins are merged in pairs around 0. Powers of two make both the
binning and the merging exact, so any order of batches, and any merge of parts, gives the same counts.

Where channels that share a group matter differently, a member counts as the importance of its channel says,
in whole numbers up to 2^30 for the most important channel of the group, so that sums stay exact.
"""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.errors import CalibrationError, SpecError
from octavo.numerics.min_max import NO_DATA, NotFiniteError, count_groups, min_max, widen

DEFAULT_BINS = 4096
FEWEST_BINS = 512
# 2^18 bins of all groups together are 2 MB; above 64 groups each one gets fewer bins.
BINS_OF_ALL_GROUPS = 2**18
# Keeps bins / 2 / R, the factor from a number to its bin, inside float32.
SMALLEST_EXPONENT = -100
# Pieces of this many elements stay in cache and bound the memory of observing a large tensor. On a GPU, which
# waits for every piece, they are as large as memory has no trouble with.
PIECE, GPU_PIECE = 2**17, 2**24
# What a member of a group's most important channel counts: the sum of a piece is exact in float64, that of
# 2^33 members fits int64.
FULL_IMPORTANCE = 2**30


def default_bins(groups: int) -> int:
    """Return the bins of one group, a power of two from 512 to 4096."""
    share = max(FEWEST_BINS, BINS_OF_ALL_GROUPS // groups)
    return min(DEFAULT_BINS, 1 << share.bit_length() - 1)


def power_of_two(exponent: Tensor) -> Tensor:
    """Return 2^exponent in float64 for an integer tensor, to the bit on every device."""
    return (exponent.to(torch.int64) + 1023 << 52).view(torch.float64)


class Histogram:
    """Counts (groups, bins) over [-2^exponent, 2^exponent), and exact minima and maxima, (groups,) each."""

    def __init__(self, index: Tensor, bins: int | None = None, importance: Tensor | None = None) -> None:
        """Start empty for channels grouped by `index` (channels,); `bins` is a power of two.

        `importance`, (channels,) and not negative, says how much the members of each channel count; None
        counts all of them once.
        """
        self.index = index
        self.groups = count_groups(index)
        self.importance = None if importance is None else _whole_importance(importance, index, self.groups)
        self.bins = default_bins(self.groups) if bins is None else bins
        self.counts = torch.zeros(self.groups, self.bins, dtype=torch.int64)
        self.exponent = torch.full((self.groups,), SMALLEST_EXPONENT)
        self.minimum = torch.full((self.groups,), torch.inf)
        self.maximum = torch.full((self.groups,), -torch.inf)

    @property
    def empty(self) -> bool:
        """Whether nothing has been observed."""
        return not bool(self.counts.any())

    def require_data(self) -> None:
        """Raise unless something has been observed."""
        if self.empty:
            raise CalibrationError(NO_DATA)

    def observe(self, x: Tensor) -> None:
        """Count every member of `x`, (channels, members)."""
        if x.numel() == 0:
            return
        self._to(x.device)
        fine = self._extend(*min_max(x, self.index, self.groups))
        dtype = torch.float32 if fine else torch.float64
        factor = self._factor(self.exponent)[self.index].unsqueeze(1).to(dtype)
        # The middle bin of each group's run of bins, where 0 falls.
        middle = (self.index * self.bins + self.bins // 2).int().unsqueeze(1)
        counts = self.counts.view(-1)
        size = GPU_PIECE if x.is_cuda else PIECE
        for piece in torch.split(x, max(1, size // x.shape[0]), dim=1):
            bins = (piece.float().to(dtype) * factor).floor_().int().add_(middle)
            if self.importance is None:
                counts += torch.bincount(bins.reshape(-1), minlength=len(counts))
            else:
                weights = self.importance.unsqueeze(1).expand_as(bins).reshape(-1)
                counts += torch.bincount(bins.reshape(-1), weights, minlength=len(counts)).long()

    def merge(self, other: Histogram) -> None:
        """Add a histogram with the same groups and bins, as if its data had been observed here."""
        if (self.groups, self.bins) != (other.groups, other.bins):
            raise CalibrationError(
                f"a histogram of {other.groups} groups x {other.bins} bins cannot be merged into one of "
                f"{self.groups} x {self.bins}; make both for the same site."
            )
        if not _same(self.importance, other.importance):
            raise CalibrationError(
                "histograms whose channels differ in importance cannot be merged; make both with the same."
            )
        if other.empty:
            return
        self._to(other.counts.device)
        self._extend(other.minimum, other.maximum)
        self.counts += _merge_bins(other.counts, self.exponent - other.exponent)

    def _factor(self, exponent: Tensor) -> Tensor:
        """From a number to its bin, (groups,) in float64."""
        return power_of_two(-exponent) * (self.bins // 2)

    def _extend(self, minimum: Tensor, maximum: Tensor) -> bool:
        """Take a new range into account, merging bins where R must grow.

        Return whether every factor is at least 1: a smaller one could underflow a negative float32 to 0, and
        so carry it over to the positive side.
        """
        minimum, maximum = widen((self.minimum, self.maximum), (minimum, maximum))
        magnitude = torch.maximum(-minimum, maximum)
        # magnitude = m * 2^e with m < 1, so 2^e lies strictly above it.
        needed = torch.frexp(magnitude).exponent.to(torch.int64).clamp(min=SMALLEST_EXPONENT)
        exponent = torch.where(magnitude > 0, needed, SMALLEST_EXPONENT)
        growth = exponent - self.exponent
        # asked together: a GPU waits for each answer
        asked = (magnitude.isfinite().all(), growth.any(), (self._factor(exponent) >= 1).all())
        finite, grows, fine = torch.stack(asked).tolist()
        if not finite:
            raise NotFiniteError
        if grows:
            self.counts = _merge_bins(self.counts, growth)
        self.minimum, self.maximum, self.exponent = minimum, maximum, exponent
        return bool(fine)

    def _to(self, device: torch.device) -> None:
        for name in ("index", "counts", "exponent", "minimum", "maximum"):
            setattr(self, name, getattr(self, name).to(device))
        if self.importance is not None:
            self.importance = self.importance.to(device)


def _same(first: Tensor | None, second: Tensor | None) -> bool:
    if first is None or second is None:
        return first is second
    return torch.equal(first.cpu(), second.cpu())


def _whole_importance(importance: Tensor, index: Tensor, groups: int) -> Tensor:
    """Return the importance of the channels, float64 whole numbers whose largest of each group is full.

    A channel far below the most important one of its group counts 0; a group without importance counts fully.
    """
    if importance.shape != index.shape or not bool((importance.isfinite() & (importance >= 0)).all()):
        raise SpecError(
            f"an importance of shape {tuple(importance.shape)} was given for {len(index)} channels; give one "
            "finite number for each channel, 0 or more."
        )
    importance = importance.detach().to(device=index.device, dtype=torch.float64)
    largest = importance.new_zeros(groups).scatter_reduce_(0, index, importance, "amax")[index]
    return torch.where(largest > 0, importance / largest, 1.0).mul_(FULL_IMPORTANCE).round_()


def _merge_bins(counts: Tensor, doublings: Tensor) -> Tensor:
    """Return the counts (groups, bins) after R of each group doubled `doublings` (groups,) times."""
    bins = counts.shape[1]
    position = torch.arange(bins, device=counts.device) - bins // 2
    # An arithmetic shift rounds down, so bins merge in pairs on both sides of 0.
    target = (position >> doublings.clamp(max=62).unsqueeze(1)) + bins // 2
    return torch.zeros_like(counts).scatter_add_(1, target, counts)
