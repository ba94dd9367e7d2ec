"""Range training: what happens to the ranges during quantization-aware training (section 4)."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import SpecError
from octavo.spec.checks import check_flag, check_number, shown


@dataclass(frozen=True, kw_only=True)
class LearnedRanges:
    """Scales and zero-points are trained with the weights, from where calibration left them.

    Arguments:
        gradient_scaling: divide their gradients by sqrt(members * largest integer), as LSQ does.
    """

    gradient_scaling: bool = False

    def __post_init__(self) -> None:
        check_flag("gradient_scaling", self.gradient_scaling)


@dataclass(frozen=True, kw_only=True)
class FixedRanges:
    """Ranges stay where calibration left them; only the network is trained."""


@dataclass(frozen=True, kw_only=True)
class RunningRanges:
    """Activation ranges follow a moving average of what passes, weight ranges the weights (Q8BERT).

    Arguments:
        momentum: weight of the old range.
    """

    momentum: float = 0.99

    def __post_init__(self) -> None:
        check_number("momentum", self.momentum)
        if not 0 <= self.momentum < 1:
            raise SpecError(f"momentum must be at least 0 and below 1, got {shown(self.momentum)}")
        object.__setattr__(self, "momentum", float(self.momentum))


RangeTraining = LearnedRanges | FixedRanges | RunningRanges

TRAININGS: dict[str, type[RangeTraining]] = {
    "learned": LearnedRanges,
    "fixed": FixedRanges,
    "running": RunningRanges,
}
"""How recipe files name what happens to ranges in training."""
