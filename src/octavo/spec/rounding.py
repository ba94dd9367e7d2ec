"""Rounding: how each weight chooses between the two grid points around it (appendix B)."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.errors import SpecError
from octavo.spec.checks import check_integer, check_number, shown

_TRAVEL = 10.0
"""Learning rate times iterations in the paper: 1e-3 over 10^4 steps."""


@dataclass(frozen=True, kw_only=True)
class Nearest:
    """Every weight goes to the nearest grid point."""


@dataclass(frozen=True, kw_only=True)
class AdaRound:
    """Weights round up or down so that the output of their layer changes least; needs calibration data.

    Arguments:
        iterations: steps of Adam for each layer.
        learning_rate: None takes 10 / iterations, the paper's 1e-3 at its 10 000 steps; a shorter run has to
            stride further, since from the middle V must travel 2.4 to reach either side.
        weight: weight of the term that drives every weight to one side.
        warmup: share of the iterations without that term.
        beta: its exponent, annealed from the first to the second value after the warm-up.
    """

    iterations: int = 10_000
    learning_rate: float | None = None
    weight: float = 0.01
    warmup: float = 0.2
    beta: tuple[float, float] = (20.0, 2.0)

    def __post_init__(self) -> None:
        check_integer("iterations", self.iterations, 1)
        if self.learning_rate is not None:
            object.__setattr__(self, "learning_rate", _positive("learning_rate", self.learning_rate))
        object.__setattr__(self, "weight", _positive("weight", self.weight))
        check_number("warmup", self.warmup)
        if not 0 <= self.warmup < 1:
            raise SpecError(f"warmup must be at least 0 and below 1, got {shown(self.warmup)}")
        object.__setattr__(self, "warmup", float(self.warmup))
        if not isinstance(self.beta, tuple) or len(self.beta) != 2:
            raise SpecError(f"beta must be two numbers, its first and its last value, got {shown(self.beta)}")
        first, last = (_positive("beta", value) for value in self.beta)
        if not first >= last >= 2:
            raise SpecError(f"beta must fall and stay at 2 or above, got {first:g} to {last:g}")
        object.__setattr__(self, "beta", (first, last))

    @property
    def step(self) -> float:
        """The learning rate in use."""
        return _TRAVEL / self.iterations if self.learning_rate is None else self.learning_rate


def _positive(field: str, value: object) -> float:
    check_number(field, value)
    number = float(value)  # type: ignore[arg-type]
    if not 0 < number < float("inf"):
        raise SpecError(f"{field} must be a number above 0, got {shown(value)}")
    return number


Rounding = Nearest | AdaRound

ROUNDINGS: dict[str, type[Rounding]] = {"nearest": Nearest, "adaround": AdaRound}
"""Every rounding by its name in recipe files."""
