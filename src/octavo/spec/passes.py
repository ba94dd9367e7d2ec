"""Passes: what is done to a model beyond placing quantizers and finding ranges, as data in a recipe.

A recipe lists its passes in order. Every pass belongs to a stage, and the stages follow one another:

| stage      | what is known then                               | passes                                |
|------------|--------------------------------------------------|---------------------------------------|
| `SPECS`    | nothing: specs are still decided                 | `AllocateBits`                        |
| `FLOAT`    | the specs; no range is found yet                 | `Fold`                                |
| `WEIGHTS`  | weights are on their grids, activations in float | `AdaRound`                            |
| `RANGES`   | every range                                      | `IntegerFunctions`, `SplitGroups`     |
| `TRAINING` | a calibrated model, and labels                   | `LearnedRanges`, `FixedRanges`, ...   |

How a pass is carried out stands in one table, `octavo.methods.passes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import ClassVar

from octavo.errors import SpecError
from octavo.spec.checks import check_flag, check_integer, check_number, check_positive, check_texts, shown
from octavo.spec.variant import Variant, check_variant


class Stage(IntEnum):
    """When a pass is carried out; a recipe lists passes in this order."""

    SPECS = 0
    FLOAT = 1
    WEIGHTS = 2
    RANGES = 3
    TRAINING = 4


@dataclass(frozen=True, kw_only=True)
class Pass(Variant, family="pass"):
    """One thing done to a model; `stage` says when."""

    stage: ClassVar[Stage]

    def patterns(self) -> tuple[str, ...]:
        """Return the site patterns that a model must have."""
        return ()

    def roles_needed(self) -> tuple[str, ...]:
        """Return the roles that a model must have."""
        return ()


# -- specs ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Budget(Variant, family="budget"):
    """How many bits the matrices of a model's layers may take together."""

    def of(self, counts: Mapping[str, int], fixed: int) -> float:
        """Return these bits.

        Arguments:
            counts: weights in each layer.
            fixed: bits that everything else takes.
        """
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class AverageBits(Budget, name="average-bits"):
    """So many bits for a weight of the encoder's layers, on average."""

    bits: float

    def __post_init__(self) -> None:
        check_positive("bits", self.bits)

    def of(self, counts: Mapping[str, int], fixed: int) -> float:
        """Return the average times the number of weights."""
        return self.bits * sum(counts.values())


@dataclass(frozen=True, kw_only=True)
class Megabytes(Budget, name="megabytes"):
    """So many megabytes (10^6 bytes) for all weights, embeddings among them, scales not counted."""

    size: float

    def __post_init__(self) -> None:
        check_positive("size", self.size)

    def of(self, counts: Mapping[str, int], fixed: int) -> float:
        """Return what is left for the layers."""
        return self.size * 8e6 - fixed


@dataclass(frozen=True, kw_only=True)
class AllocateBits(Pass, name="allocate-bits"):
    """Sensitive layers get more bits than others within a budget, by Hessian eigenvalues (Q-BERT).

    The pass is replaced by the overrides that it finds: a model's recipe shows the bits of every matrix.

    Arguments:
        budget: how large the layers may become together.
        choices: bit-widths to choose from.
        parts: into how many batches texts are cut; each gives an eigenvalue, and their spread counts as well.
    """

    stage: ClassVar[Stage] = Stage.SPECS

    budget: Budget = field(metadata={"family": Budget})
    choices: tuple[int, ...] = (2, 3, 4, 8)
    parts: int = 8

    def __post_init__(self) -> None:
        check_variant("budget", self.budget, Budget)
        if not isinstance(self.choices, tuple) or not self.choices:
            raise SpecError(f"choices must be a list of bit-widths, got {shown(self.choices)}")
        for bits in self.choices:
            check_integer("choices", bits, 2, 16)
        check_integer("parts", self.parts, 1)


# -- float ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Fold(Pass, name="fold"):
    """Channels of activations are divided by `range ** power`, and the weights that read them multiplied.

    The factors go into the norm before a site and into the linear layers after it, so that integer kernels
    see one range where there is a scale per embedding dimension: for free. A site that something other than
    linear layers reads stays as it is, with a warning.

    Arguments:
        sites, roles: which activations, as in `Override`.
        skip_sites, skip_roles: which of these not.
        optional: the model may lack these sites; otherwise that is an error.
        power: 0 leaves channels as they are, 1 makes their ranges equal; between, activations and weights
            share the burden (SmoothQuant's alpha, of activations alone).
    """

    stage: ClassVar[Stage] = Stage.FLOAT

    sites: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    skip_sites: tuple[str, ...] = ()
    skip_roles: tuple[str, ...] = ()
    optional: bool = False
    power: float = 0.5

    def __post_init__(self) -> None:
        for name in ("sites", "roles", "skip_sites", "skip_roles"):
            check_texts(name, getattr(self, name))
        if not self.sites and not self.roles:
            raise SpecError("fold names neither sites nor roles; say which activations are folded")
        check_flag("optional", self.optional)
        check_number("power", self.power)
        if not 0 < self.power <= 1:
            raise SpecError(f"power must be a number above 0 and at most 1, got {self.power}")

    def applies(self, site: str, role: str) -> bool:
        """Say whether the site with this name and role is folded."""
        skipped = role in self.skip_roles or any(fnmatchcase(site, pattern) for pattern in self.skip_sites)
        return not skipped and (role in self.roles or any(fnmatchcase(site, p) for p in self.sites))

    def patterns(self) -> tuple[str, ...]:
        """Return the site patterns that a model must have."""
        return () if self.optional else self.sites

    def roles_needed(self) -> tuple[str, ...]:
        """Return the roles that a model must have."""
        return () if self.optional else self.roles


# -- weights -------------------------------------------------------------------------------------------------

_TRAVEL = 10.0
"""Learning rate times iterations in the paper: 1e-3 over 10^4 steps."""


@dataclass(frozen=True, kw_only=True)
class AdaRound(Pass, name="adaround"):
    """Weights round up or down so that the output of their layer changes least; without it, to nearest.

    Arguments:
        iterations: steps of Adam for each layer.
        learning_rate: None takes 10 / iterations, the paper's 1e-3 at its 10 000 steps; a shorter run has to
            stride further, since from the middle V must travel 2.4 to reach either side.
        weight: weight of the term that drives every weight to one side.
        warmup: share of the iterations without that term.
        beta: its exponent, annealed from the first to the second value after the warm-up.
        flips: flip single weights at the end as long as that lowers the layer's loss; the paper does not.
    """

    stage: ClassVar[Stage] = Stage.WEIGHTS

    iterations: int = 10_000
    learning_rate: float | None = None
    weight: float = 0.01
    warmup: float = 0.2
    beta: tuple[float, float] = (20.0, 2.0)
    flips: bool = True

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

    @property
    def step(self) -> float:
        """The learning rate in use."""
        return _TRAVEL / self.iterations if self.learning_rate is None else self.learning_rate


# -- ranges --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class IntegerFunctions(Pass, name="integer-functions"):
    """GELU, softmax and LayerNorm compute in integers, as I-BERT does, instead of in float."""

    stage: ClassVar[Stage] = Stage.RANGES


@dataclass(frozen=True, kw_only=True)
class SplitGroups(Pass, name="split-groups"):
    """Activations in groups become one tensor a group, each with a range of its own: per-tensor PEG."""

    stage: ClassVar[Stage] = Stage.RANGES


# -- training ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class RangeTraining(Pass, abstract=True):
    """Quantization-aware training; the variant says what happens to the ranges meanwhile (section 4)."""

    stage: ClassVar[Stage] = Stage.TRAINING


@dataclass(frozen=True, kw_only=True)
class LearnedRanges(RangeTraining, name="learned-ranges"):
    """Scales and zero-points are trained with the weights, from where calibration left them.

    Arguments:
        gradient_scaling: divide their gradients by sqrt(members * largest integer), as LSQ does.
    """

    gradient_scaling: bool = False

    def __post_init__(self) -> None:
        check_flag("gradient_scaling", self.gradient_scaling)


@dataclass(frozen=True, kw_only=True)
class FixedRanges(RangeTraining, name="fixed-ranges"):
    """Ranges stay where calibration left them; only the network is trained."""


@dataclass(frozen=True, kw_only=True)
class RunningRanges(RangeTraining, name="running-ranges"):
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


PASSES = Pass.variants()
"""Every pass by its name in recipe files."""


def check_passes(passes: object) -> None:
    """Refuse anything but a tuple of passes in an order that can be carried out."""
    if not isinstance(passes, tuple):
        raise SpecError(f"passes must be a tuple of passes, got {shown(passes)}")
    for entry in passes:
        check_variant("passes", entry, Pass)
    for first, second in pairwise(passes):
        if first.stage > second.stage:
            order = sorted(passes, key=lambda entry: entry.stage)
            raise SpecError(
                f"passes: {first.variant_name} cannot come before {second.variant_name}; "
                f"the order that works is {', '.join(entry.variant_name for entry in order)}"
            )
    training = [entry.variant_name for entry in passes if entry.stage is Stage.TRAINING]
    if len(training) > 1:
        raise SpecError(f"passes: a model is trained once, got {' and '.join(training)}; keep one")
