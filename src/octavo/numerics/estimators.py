"""Range estimators: they watch a tensor, batch after batch, and say which range to quantize it with.

| class               | range                                             | depends on batch cutting |
|---------------------|---------------------------------------------------|--------------------------|
| CurrentMinMax       | of the last batch                                 | yes                      |
| RunningMinMax       | moving average over batches                       | yes                      |
| AllMinMax           | of everything seen                                | no                       |
| HistogramPercentile | without the same share of the data at either end  | no                       |
| TokenQuantiles      | that holds a share of the tokens whole            | no                       |
| HistogramMse        | of least squared error                            | no                       |
| RowCrossEntropy     | of least cross-entropy of the softmax (logits)    | no                       |

All are made alike: `Estimator(index, bits=8, symmetric=False)` for the grid that the range is meant for, and
the options of each by name, as its spec has them. None knows of granularity: an index (channels,) gives each
channel its group (see `layout`), and the memory an estimator holds does not grow with what it has seen.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, TypedDict, Unpack

import torch
from torch import Tensor

from octavo.errors import CalibrationError, SpecError
from octavo.numerics.affine import check_bits
from octavo.numerics.cross_entropy import cross_entropy_range
from octavo.numerics.histogram import Histogram
from octavo.numerics.min_max import (
    NO_DATA,
    NotFiniteError,
    Range,
    channel_min_max,
    count_groups,
    min_max,
    stand_apart,
    widen,
)
from octavo.numerics.mse import mse_of_histogram
from octavo.numerics.percentile import check_percent, percentile_of_histogram
from octavo.numerics.reservoir import RowReservoir
from octavo.numerics.token_extremes import quantile_of_rows, token_extremes


class GridOptions(TypedDict, total=False):
    """What every estimator may be told of the grid that its range is meant for."""

    bits: int
    symmetric: bool
    signed: bool | None


class RangeEstimator(ABC):
    """What all estimators share: observe a batch in one or more pieces, commit it, and ask for the range."""

    reads_rows: ClassVar[bool] = False
    """Whether it observes (rows, classes), with the last axis kept together, and not (channels, members)."""

    def __init__(
        self, index: Tensor, *, bits: int = 8, symmetric: bool = False, signed: bool | None = None
    ) -> None:
        """Start for channels grouped by `index`, (channels,), and a grid of `bits` bits.

        `signed` says whether a symmetric grid has negative integers; None means where the data has.
        """
        check_bits(bits)
        self.index, self.bits, self.symmetric, self.signed = index, bits, symmetric, signed
        self.groups = count_groups(index)

    def observe(self, x: Tensor) -> None:
        """Look at a piece of the current batch, (channels, members), which may be empty."""
        if x.shape[0] != len(self.index):
            raise CalibrationError(
                f"{x.shape[0]} channels were observed by an estimator of {len(self.index)}; "
                "give every batch the layout that the estimator was made for."
            )
        if x.numel():
            self._observe(x.detach())

    def commit(self) -> None:  # noqa: B027 - most estimators do not care where a batch ends
        """Close the current batch."""

    def range(self) -> Range:
        """Return the minima and maxima of the groups, float32 (groups,) each; an open batch counts too."""
        found = self._range()
        if found is None:
            raise CalibrationError(NO_DATA)
        if not bool(torch.isfinite(torch.stack(found)).all()):
            raise NotFiniteError
        return found

    @abstractmethod
    def _observe(self, x: Tensor) -> None:
        """Take in (channels, members), both at least 1."""

    @abstractmethod
    def _range(self) -> Range | None:
        """Return the range, or None if nothing was observed."""


class _BatchMinMax(RangeEstimator):
    """Minimum and maximum of each batch, folded into those of the batches before it."""

    def __init__(self, index: Tensor, **grid: Unpack[GridOptions]) -> None:
        super().__init__(index, **grid)
        self._batch: Range | None = None
        self._past: Range | None = None
        self._apart = stand_apart(index)

    def commit(self) -> None:
        self._past, self._batch = self._range(), None

    def _observe(self, x: Tensor) -> None:
        # few operations: on a GPU their number is what watching hundreds of tensors takes
        seen = channel_min_max(x) if self._apart else min_max(x, self.index, self.groups)
        self._batch = widen(self._batch, seen)

    def _range(self) -> Range | None:
        if self._past is None or self._batch is None:
            return self._batch or self._past
        return self._fold(self._past, self._batch)

    @abstractmethod
    def _fold(self, past: Range, batch: Range) -> Range:
        """Return the range after a batch."""


class CurrentMinMax(_BatchMinMax):
    """The range of the last batch."""

    def _fold(self, past: Range, batch: Range) -> Range:
        # 0 if finite, else NaN: what was wrong with an earlier batch is not forgotten
        return batch[0] + 0 * past[0], batch[1] + 0 * past[1]


class RunningMinMax(_BatchMinMax):
    """The moving average of the batches' ranges: momentum * past + (1 - momentum) * batch."""

    def __init__(self, index: Tensor, *, momentum: float = 0.9, **grid: Unpack[GridOptions]) -> None:
        """Start with the weight `momentum`, from 0 up to but not including 1, on the past."""
        super().__init__(index, **grid)
        if not 0 <= momentum < 1:
            raise SpecError(f"the momentum {momentum} was asked for; use a number from 0 to below 1.")
        self.momentum = momentum

    def _fold(self, past: Range, batch: Range) -> Range:
        weight = 1 - self.momentum
        return past[0].lerp(batch[0], weight), past[1].lerp(batch[1], weight)


class AllMinMax(_BatchMinMax):
    """The range of everything seen."""

    def _fold(self, past: Range, batch: Range) -> Range:
        return widen(past, batch)


class _HistogramEstimator(RangeEstimator):
    """An estimator that needs the distribution of the data, held as a histogram per group."""

    def __init__(self, index: Tensor, **grid: Unpack[GridOptions]) -> None:
        super().__init__(index, **grid)
        self.histogram = Histogram(index)

    def _observe(self, x: Tensor) -> None:
        self.histogram.observe(x)


class HistogramPercentile(_HistogramEstimator):
    """The range between the percentiles 100 - `percent` and `percent`."""

    def __init__(self, index: Tensor, *, percent: float = 99.999, **grid: Unpack[GridOptions]) -> None:
        """Start for a percentile above 50 and at most 100."""
        super().__init__(index, **grid)
        check_percent(percent)
        self.percent = percent

    def _range(self) -> Range:
        return percentile_of_histogram(self.histogram, self.percent)


class HistogramMse(_HistogramEstimator):
    """The range of least squared error on the grid it will be used with."""

    def __init__(
        self,
        index: Tensor,
        *,
        candidates: int = 100,
        importance: Tensor | None = None,
        **grid: Unpack[GridOptions],
    ) -> None:
        """Start for a grid, trying `candidates` ranges and then finer ones.

        `importance`, (channels,), weighs the squared errors of each channel, as in `mse_range`.
        """
        super().__init__(index, **grid)
        self.candidates = candidates
        if importance is not None:
            self.histogram = Histogram(index, importance=importance)

    def _range(self) -> Range:
        return mse_of_histogram(self.histogram, self.bits, self.symmetric, self.candidates, self.signed)


class TokenQuantiles(RangeEstimator):
    """The range between the quantiles of the tokens' own minima and maxima.

    It observes (tokens, channels), so that it knows which numbers belong to one token; with one channel in
    `index` a token's numbers share one group. Beyond `CAPACITY` numbers it judges an evenly spaced sample of
    the tokens, as histograms would not do: where one token reaches a million times further than the others,
    all others share a bin. The extremes of everything are exact.
    """

    CAPACITY = 2**18
    reads_rows = True

    def __init__(self, index: Tensor, *, keep: float = 0.99, **grid: Unpack[GridOptions]) -> None:
        """Start for a share `keep` of the tokens, above 0 and at most 1."""
        super().__init__(index, **grid)
        self.keep = keep
        self._ends = RowReservoir(self.CAPACITY)
        self._full: Range | None = None

    def observe(self, x: Tensor) -> None:
        """Look at tokens with their channels kept, (tokens, channels)."""
        if x.ndim != 2 or len(self.index) not in (1, x.shape[1]):
            raise CalibrationError(
                f"tokens of shape {tuple(x.shape)} were observed by an estimator of {len(self.index)} "
                "channels; give them as (tokens, channels)."
            )
        if x.numel():
            self._observe(x.detach())

    def _observe(self, x: Tensor) -> None:
        low, high = token_extremes(x, self.index, self.groups)
        self._full = widen(self._full, (low.amin(dim=0), high.amax(dim=0)))
        self._ends.add(torch.cat([low, high], dim=1))

    def _range(self) -> Range | None:
        return None if self._full is None else self.range_at(self.keep)

    def range_at(self, keep: float) -> Range:
        """Return the range that a share of the tokens fits into, (groups,) each."""
        if self._full is None:
            raise CalibrationError(NO_DATA)
        if keep == 1 or not bool(torch.isfinite(torch.stack(self._full)).all()):
            return self._full
        low, high = self._ends.rows().tensor_split([self.groups], dim=1)
        return -quantile_of_rows(-low, keep), quantile_of_rows(high, keep)


class RowCrossEntropy(RangeEstimator):
    """The range of logits that changes their softmax least, judged on an evenly spaced sample of the rows.

    Unlike its siblings it must know which numbers stand in one row, so it observes (rows, classes), not
    (channels, members). It has one group.
    """

    CAPACITY = 2**18
    reads_rows = True

    def __init__(self, index: Tensor, *, candidates: int = 100, **grid: Unpack[GridOptions]) -> None:
        """Start for a grid; `index` must name a single group."""
        super().__init__(index, **grid)
        if self.groups != 1:
            raise SpecError(f"cross-entropy with {self.groups} groups was asked for; use it per tensor.")
        self.candidates = candidates
        self._rows = RowReservoir(self.CAPACITY)
        self._full: Range | None = None

    def observe(self, x: Tensor) -> None:
        """Look at logits with their rows kept, (rows, classes)."""
        if x.ndim != 2:
            raise CalibrationError(
                f"logits of shape {tuple(x.shape)} were observed; give them as (rows, classes)."
            )
        if x.numel():
            self._observe(x.detach())

    def _observe(self, x: Tensor) -> None:
        every_row = self.index.new_zeros(len(x))
        self._full = widen(self._full, min_max(x, every_row, 1))
        self._rows.add(x)

    def _range(self) -> Range | None:
        if self._full is None or not bool(torch.isfinite(torch.stack(self._full)).all()):
            return self._full
        minimum, maximum = self._full
        found = cross_entropy_range(
            self._rows.rows(),
            minimum[0],
            maximum[0],
            self.bits,
            self.symmetric,
            self.candidates,
            self.signed,
        )
        return found[0].reshape(1), found[1].reshape(1)
