"""Range estimators: how the minimum and maximum that a quantizer covers are found (section 2, appendix B).

What others need to know of an estimator it says itself; nobody keeps a list of estimators elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from octavo.errors import SpecError
from octavo.spec.checks import check_flag, check_integer, check_number
from octavo.spec.variant import Variant


@dataclass(frozen=True, kw_only=True)
class Estimator(Variant, family="estimator"):
    """How a range is found.

    Properties of the variant:
        clips: the range may be smaller than what calibration saw.
        reads_order: the range depends on the order of the calibration texts, or on how they are batched.
        reads_one_tensor: a range can be found from a single tensor, as dynamic ranges are.
        needs_rows: whole rows are compared, so that there is one range for the tensor.
        searches_integers: ranges are compared by their errors on a grid of integers.
        activations_only: weights lack what it reads, such as tokens.
    """

    clips: ClassVar[bool] = False
    reads_order: ClassVar[bool] = False
    reads_one_tensor: ClassVar[bool] = False
    needs_rows: ClassVar[bool] = False
    searches_integers: ClassVar[bool] = False

    @property
    def activations_only(self) -> bool:
        """Whether weights lack what it reads, such as tokens."""
        return False


@dataclass(frozen=True, kw_only=True)
class MinMax(Estimator, name="min-max"):
    """Current min-max: the range of the last batch; of weights, their exact range."""

    reads_order: ClassVar[bool] = True
    reads_one_tensor: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class RunningMinMax(Estimator, name="running-min-max"):
    """Running min-max: range ← momentum · range + (1 - momentum) · range of the batch."""

    clips: ClassVar[bool] = True
    reads_order: ClassVar[bool] = True

    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_number("momentum", self.momentum)
        if not 0 <= self.momentum < 1:
            raise SpecError(f"momentum must be at least 0 and below 1, got {self.momentum}")
        object.__setattr__(self, "momentum", float(self.momentum))


@dataclass(frozen=True, kw_only=True)
class AllMinMax(Estimator, name="all-min-max"):
    """The smallest and largest value ever observed; clips nothing that calibration saw."""


@dataclass(frozen=True, kw_only=True)
class Percentile(Estimator, name="percentile"):
    """The values at `percent` and `100 - percent` per cent of the observed distribution."""

    clips: ClassVar[bool] = True
    reads_one_tensor: ClassVar[bool] = True

    percent: float = 99.999

    def __post_init__(self) -> None:
        check_number("percent", self.percent)
        if not 50 < self.percent <= 100:
            raise SpecError(f"percent must be above 50 and at most 100, got {self.percent}")
        object.__setattr__(self, "percent", float(self.percent))


@dataclass(frozen=True, kw_only=True)
class TokenQuantile(Estimator, name="token-quantile"):
    """The range that holds this share of the tokens whole, at either end (Outlier Suppression).

    Every token has a largest and a smallest value; the range ends at the quantile of those over tokens, so
    that a few odd tokens, however far they reach, do not widen it, and no other token is clipped.

    Arguments:
        keep: share of the tokens whose largest (smallest) value lies inside; 1 is all-min-max.
    """

    clips: ClassVar[bool] = True

    keep: float = 0.99

    def __post_init__(self) -> None:
        check_number("keep", self.keep)
        if not 0 < self.keep <= 1:
            raise SpecError(f"keep must be a number above 0 and at most 1, got {self.keep}")
        object.__setattr__(self, "keep", float(self.keep))

    @property
    def activations_only(self) -> bool:
        """Whether weights lack what it reads: tokens."""
        return True


@dataclass(frozen=True, kw_only=True)
class Mse(Estimator, name="mse"):
    """The range with the least mean squared quantization error among `candidates` ranges.

    Arguments:
        candidates: how many ranges are tried before finer ones.
        weighted: weigh the errors of every embedding dimension by what reads it: the squared columns of the
            linear layers' weights, behind a norm times its squared weight; 1 where neither reads it.
    """

    clips: ClassVar[bool] = True
    reads_one_tensor: ClassVar[bool] = True
    searches_integers: ClassVar[bool] = True

    candidates: int = 100
    weighted: bool = False

    def __post_init__(self) -> None:
        check_integer("candidates", self.candidates, 1)
        check_flag("weighted", self.weighted)

    @property
    def activations_only(self) -> bool:
        """Whether weights lack what it reads: readers."""
        return self.weighted


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Estimator, name="cross-entropy"):
    """The range whose quantized rows lose least cross-entropy after a softmax; meant for logits."""

    reads_order: ClassVar[bool] = True
    needs_rows: ClassVar[bool] = True
    searches_integers: ClassVar[bool] = True

    candidates: int = 100

    def __post_init__(self) -> None:
        check_integer("candidates", self.candidates, 1)


ESTIMATORS = Estimator.variants()
"""Every estimator by its name in recipe files."""
