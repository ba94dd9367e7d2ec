"""The spec of one tensor: everything that decides how it is quantized."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.errors import SpecError
from octavo.spec.checks import check_flag, check_integer, check_variant
from octavo.spec.estimator import CrossEntropy, Estimator, MinMax, Mse, Percentile
from octavo.spec.granularity import Granularity, PerTensor, PerToken


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """How one tensor is quantized.

    Arguments:
        bits: width of the integer grid, 2 to 16.
        symmetric: a zero-point of 0; otherwise it is free (equations 1 and 2).
        granularity: which entries share a scale.
        estimator: how the range is found.
        dynamic: compute the range from each tensor as it passes, instead of once in calibration.
    """

    bits: int = 8
    symmetric: bool = False
    granularity: Granularity = field(default_factory=PerTensor)
    estimator: Estimator = field(default_factory=MinMax)
    dynamic: bool = False

    def __post_init__(self) -> None:
        check_integer("bits", self.bits, 2, 16)
        check_flag("symmetric", self.symmetric)
        check_variant("granularity", self.granularity, Granularity)
        check_variant("estimator", self.estimator, Estimator)
        check_flag("dynamic", self.dynamic)
        self._check_combination()

    def _check_combination(self) -> None:
        """Refuse pairs that make no sense, rather than fall back silently."""
        if self.dynamic and not isinstance(self.estimator, MinMax | Percentile | Mse):
            raise SpecError(
                f"a dynamic range comes from one tensor alone, {type(self.estimator).__name__} reads many; "
                "use min-max, percentile or mse"
            )
        if isinstance(self.granularity, PerToken) and not self.dynamic:
            raise SpecError(
                "per-token has no static ranges, since tokens differ in every batch; add dynamic: true"
            )
        if isinstance(self.estimator, CrossEntropy) and not isinstance(self.granularity, PerTensor):
            raise SpecError(
                "the cross-entropy estimator compares whole rows and works per tensor only, got "
                f"{type(self.granularity).__name__}; use granularity per-tensor, or the mse estimator"
            )
