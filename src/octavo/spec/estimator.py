"""Range estimators: how the minimum and maximum that a quantizer covers are found (section 2, appendix B)."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import SpecError
from octavo.spec.checks import check_integer, check_number


@dataclass(frozen=True, kw_only=True)
class MinMax:
    """Current min-max: the range of the last batch; of weights, their exact range."""


@dataclass(frozen=True, kw_only=True)
class RunningMinMax:
    """Running min-max: range ← momentum · range + (1 - momentum) · range of the batch."""

    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_number("momentum", self.momentum)
        if not 0 <= self.momentum < 1:
            raise SpecError(f"momentum must be at least 0 and below 1, got {self.momentum}")
        object.__setattr__(self, "momentum", float(self.momentum))


@dataclass(frozen=True, kw_only=True)
class AllMinMax:
    """The smallest and largest value ever observed; clips nothing that calibration saw."""


@dataclass(frozen=True, kw_only=True)
class Percentile:
    """The values at `percent` and `100 - percent` per cent of the observed distribution."""

    percent: float = 99.999

    def __post_init__(self) -> None:
        check_number("percent", self.percent)
        if not 50 < self.percent <= 100:
            raise SpecError(f"percent must be above 50 and at most 100, got {self.percent}")
        object.__setattr__(self, "percent", float(self.percent))


@dataclass(frozen=True, kw_only=True)
class Mse:
    """The range with the least mean squared quantization error among `candidates` ranges."""

    candidates: int = 100

    def __post_init__(self) -> None:
        check_integer("candidates", self.candidates, 1)


@dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """The range whose quantized rows lose least cross-entropy after a softmax; meant for logits."""

    candidates: int = 100

    def __post_init__(self) -> None:
        check_integer("candidates", self.candidates, 1)


Estimator = MinMax | RunningMinMax | AllMinMax | Percentile | Mse | CrossEntropy

ESTIMATORS: dict[str, type[Estimator]] = {
    "min-max": MinMax,
    "running-min-max": RunningMinMax,
    "all-min-max": AllMinMax,
    "percentile": Percentile,
    "mse": Mse,
    "cross-entropy": CrossEntropy,
}
"""Every estimator by its name in recipe files."""
