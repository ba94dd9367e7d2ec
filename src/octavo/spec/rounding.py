"""Passes of the stage `WEIGHTS`: how weights are rounded, other than to nearest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from octavo.errors import SpecError
from octavo.spec.checks import check_flag, check_integer, check_number, check_positive, check_share, shown
from octavo.spec.passes import Pass, Stage

_TRAVEL = 10.0
"""Learning rate times iterations in the paper: 1e-3 over 10^4 steps."""


@dataclass(frozen=True, kw_only=True)
class WeightRounding(Pass, abstract=True):
    """Weights are rounded other than to nearest, by what their layers read."""

    stage: ClassVar[Stage] = Stage.WEIGHTS


@dataclass(frozen=True, kw_only=True)
class AdaRound(WeightRounding, name="adaround"):
    """Weights round up or down so that the output of their layer changes least; without it, to nearest.

    Arguments:
        iterations: steps of Adam for each layer.
        learning_rate: None takes 10 / iterations, the paper's 1e-3 at its 10 000 steps; a shorter run has to
            stride further, since from the middle V must travel 2.4 to reach either side.
        weight: weight of the term that drives every weight to one side.
        warmup: share of the iterations without that term.
        beta: its exponent, annealed from the first to the second value after the warm-up.
        flips: flip single weights at the end as long as that lowers the layer's loss; the paper does not.
        shrinkage: share of the correlations between inputs that is taken back, between 0 (as in the paper)
            and 1; few texts, and texts of another kind, need it.
        asymmetric: the target is the float model's output, as in the paper, so that a layer also makes up
            for the errors before it; otherwise it is the output for the very input that it gets.
    """

    iterations: int = 10_000
    learning_rate: float | None = None
    weight: float = 0.01
    warmup: float = 0.2
    beta: tuple[float, float] = (20.0, 2.0)
    flips: bool = True
    shrinkage: float = 0.0
    asymmetric: bool = True

    def __post_init__(self) -> None:
        check_integer("iterations", self.iterations, 1)
        if self.learning_rate is not None:
            object.__setattr__(self, "learning_rate", check_positive("learning_rate", self.learning_rate))
        object.__setattr__(self, "weight", check_positive("weight", self.weight))
        check_number("warmup", self.warmup)
        if not 0 <= self.warmup < 1:
            raise SpecError(f"warmup must be at least 0 and below 1, got {shown(self.warmup)}")
        object.__setattr__(self, "warmup", float(self.warmup))
        if not isinstance(self.beta, tuple) or len(self.beta) != 2:
            raise SpecError(f"beta must be two numbers, its first and its last value, got {shown(self.beta)}")
        first, last = (check_positive("beta", value) for value in self.beta)
        if not first >= last >= 2:
            raise SpecError(f"beta must fall and stay at 2 or above, got {first:g} to {last:g}")
        object.__setattr__(self, "beta", (first, last))
        check_flag("flips", self.flips)
        object.__setattr__(self, "shrinkage", check_share("shrinkage", self.shrinkage))
        check_flag("asymmetric", self.asymmetric)

    @property
    def step(self) -> float:
        """The learning rate in use."""
        return _TRAVEL / self.iterations if self.learning_rate is None else self.learning_rate


@dataclass(frozen=True, kw_only=True)
class Gptq(WeightRounding, name="gptq"):
    """Inputs of a layer are rounded one after another, and those that follow make up for the errors.

    Arguments:
        order: round inputs in the order of their mean square, the largest first ("act-order"), instead of
            their own.
        damping: share of the Hessian's mean diagonal that is added to its diagonal.
        block: inputs between two updates of all that follow; it matters to time alone.
        asymmetric: the target is the float model's output, as AdaRound's is, so that a layer also makes up
            for the errors before it; otherwise it is the output for the very input that it gets.
        sweeps: how often, in the end, every weight goes to its best value given all others; 0 is GPTQ as
            published.
        shrinkage: share of the correlations between inputs that is taken back; 0 is GPTQ as published,
            which learns few texts by heart, and 1 rounds to nearest.
        weighted: where ranges are those of least squared error, find them again with the error at every
            input weighted by its mean square, which is the error of the layer's output.
        relative: let every token count alike, whatever its size; otherwise as its square.
        only_shared: round only weights that several layers read (ALBERT's depths), whose errors are the same
            each time and add up; all others, and tables, go to nearest.
    """

    order: bool = True
    damping: float = 0.01
    block: int = 128
    asymmetric: bool = False
    sweeps: int = 0
    shrinkage: float = 0.7
    weighted: bool = False
    relative: bool = False
    only_shared: bool = False

    def __post_init__(self) -> None:
        check_flag("order", self.order)
        object.__setattr__(self, "damping", check_positive("damping", self.damping))
        check_integer("block", self.block, 1)
        check_flag("asymmetric", self.asymmetric)
        check_integer("sweeps", self.sweeps, 0)
        object.__setattr__(self, "shrinkage", check_share("shrinkage", self.shrinkage))
        check_flag("weighted", self.weighted)
        check_flag("relative", self.relative)
        check_flag("only_shared", self.only_shared)
