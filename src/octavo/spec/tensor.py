"""The spec of one tensor: everything that decides how it is quantized."""

from __future__ import annotations

from dataclasses import dataclass, field

from octavo.errors import SpecError
from octavo.spec.checks import check_flag, check_integer
from octavo.spec.estimator import Estimator, MinMax
from octavo.spec.format import Format, Integer
from octavo.spec.granularity import Granularity, PerTensor
from octavo.spec.variant import check_variant


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """How one tensor is quantized.

    Arguments:
        bits: width of the integer grid, 2 to 16.
        symmetric: a zero-point of 0; otherwise it is free (equations 1 and 2).
        granularity: which entries share a scale.
        estimator: how the range is found.
        dynamic: compute the range from each tensor as it passes, instead of once in calibration.
        format: integers, or floating-point numbers of 8 bits; the largest magnitude of the range becomes the
            largest number of the format.
    """

    bits: int = 8
    symmetric: bool = False
    granularity: Granularity = field(default_factory=PerTensor)
    estimator: Estimator = field(default_factory=MinMax)
    dynamic: bool = False
    format: Format = field(default_factory=Integer)

    def __post_init__(self) -> None:
        check_integer("bits", self.bits, 2, 16)
        check_flag("symmetric", self.symmetric)
        check_variant("granularity", self.granularity, Granularity)
        check_variant("estimator", self.estimator, Estimator)
        check_flag("dynamic", self.dynamic)
        check_variant("format", self.format, Format)
        self._check_format()
        self._check_combination()

    def _check_format(self) -> None:
        """Refuse what floating-point numbers of 8 bits do not have."""
        if not self.format.is_float:
            return
        name = self.format.variant_name
        if self.bits != 8:
            raise SpecError(f"{name} has 8 bits, got {self.bits}; write bits: 8, or format: integer")
        if not self.symmetric:
            raise SpecError(f"{name} lies around 0 and has no zero-point; add symmetric: true")
        if self.estimator.searches_integers:
            able = [n for n, kind in Estimator.variants().items() if not kind.searches_integers]
            raise SpecError(
                f"the {self.estimator.variant_name} estimator searches a grid of integers, got {name}; "
                f"use {', '.join(able[:-1])} or {able[-1]}"
            )

    def _check_combination(self) -> None:
        """Refuse pairs that make no sense, rather than fall back silently."""
        if self.dynamic and not self.estimator.reads_one_tensor:
            able = [name for name, kind in Estimator.variants().items() if kind.reads_one_tensor]
            raise SpecError(
                f"a dynamic range comes from one tensor alone, {type(self.estimator).__name__} reads many; "
                f"use {', '.join(able[:-1])} or {able[-1]}"
            )
        if self.dynamic and self.estimator.activations_only:
            raise SpecError(f"{self.estimator} finds static ranges only; drop weighted, or dynamic")
        if self.granularity.is_per_token and not self.dynamic:
            raise SpecError(
                f"{self.granularity.variant_name} has no static ranges, since tokens differ in every batch; "
                "add dynamic: true"
            )
        if self.estimator.needs_rows and not self.granularity.has_one_scale:
            raise SpecError(
                f"the {self.estimator.variant_name} estimator compares whole rows and works per tensor only, "
                f"got {type(self.granularity).__name__}; use granularity per-tensor, or the mse estimator"
            )
