"""Passes: what is done to a model beyond placing quantizers and finding ranges, as data in a recipe.

A recipe lists its passes in order. Every pass belongs to a stage, and the stages follow one another:

| stage      | what is known then                               | passes                                |
|------------|--------------------------------------------------|---------------------------------------|
| `SPECS`    | nothing: specs are still decided                 | `AllocateBits`                        |
| `FLOAT`    | the specs; no range is found yet                 | `Fold`, `Equalize`, `Spill`, ...      |
| `WEIGHTS`  | weights are on their grids, activations in float | `AdaRound` or `Gptq`                  |
| `RANGES`   | every range                                      | `BiasCorrection`, `ClipTokens`, ...   |
| `TRAINING` | a calibrated model, and labels                   | `LearnedRanges`, `FixedRanges`, ...   |

Those of the stages `FLOAT` and `WEIGHTS` have files of their own, `octavo.spec.equalization` and
`octavo.spec.rounding`. How a pass is carried out stands in one table, `octavo.methods.passes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import pairwise
from typing import ClassVar

from octavo.errors import SpecError
from octavo.spec.checks import check_flag, check_integer, check_number, check_positive, shown
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
    rewrites: ClassVar[bool] = False
    """Whether layers are no longer those of the float model afterwards."""

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


# -- ranges --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ClipTokens(Pass, name="clip-tokens"):
    """Activation ranges leave out the few tokens that reach far beyond all others, where outputs allow it.

    Token-wise clipping (Outlier Suppression): one share of the tokens is kept whole at all sites, chosen by
    the error of the model's outputs. Then every site gets a share of its own by what its error does to the
    outputs, in first order, and the sites of a role take theirs where that lowers the true error. Ranges as
    they were found and all-min-max are among the candidates, so that the error never grows. Attention
    probabilities and grids above 8 bits stay as they are.

    Arguments:
        texts: calibration texts that candidates are judged on, spread over lengths.
        lowest: smallest share tried for all sites at once; None takes 0.9 at 8 bits, 0.7 from 5 bits and 0.1
            below.
        per_site: let sites have shares of their own.
        above: search only where the outputs err by more than this (0 to 1; about 2 (1 - cosine) for
            embeddings), so that a model in good health costs two passes over the texts and no more.
    """

    stage: ClassVar[Stage] = Stage.RANGES

    texts: int = 32
    lowest: float | None = None
    per_site: bool = True
    above: float = 0.0

    def __post_init__(self) -> None:
        check_integer("texts", self.texts, 1)
        if self.lowest is not None:
            check_number("lowest", self.lowest)
            if not 0 < self.lowest <= 1:
                raise SpecError(f"lowest must be a number above 0 and at most 1, got {shown(self.lowest)}")
            object.__setattr__(self, "lowest", float(self.lowest))
        check_flag("per_site", self.per_site)
        check_number("above", self.above)
        if not 0 <= self.above < 1:
            raise SpecError(f"above must be a number from 0 to below 1, got {shown(self.above)}")
        object.__setattr__(self, "above", float(self.above))


@dataclass(frozen=True, kw_only=True)
class BiasCorrection(Pass, name="bias-correction"):
    """What every linear layer's output is off by on calibration data is subtracted from its bias.

    Layers without a bias get one. It comes before passes that rewrite layers.

    Arguments:
        robust: subtract the median over tokens, which the large errors of a few special tokens do not move;
            otherwise the mean, as published.
        guarded: leave all biases as they are where the model's outputs err more with corrections than
            without, on calibration texts.
    """

    stage: ClassVar[Stage] = Stage.RANGES

    robust: bool = True
    guarded: bool = False

    def __post_init__(self) -> None:
        check_flag("robust", self.robust)
        check_flag("guarded", self.guarded)


@dataclass(frozen=True, kw_only=True)
class TuneRanges(Pass, name="tune-ranges"):
    """Scales and zero-points of activations are learned on the error of the model's outputs, without labels.

    Adam with a cosine schedule, straight through rounding; weights stay as they are. A quarter of the texts
    is held out, and the state with the least error on them is kept, the start among them. Grids above 8 bits
    and dynamic ranges stay as they are.

    Arguments:
        steps: steps of Adam.
        learning_rate: of the logarithm of scales and of zero-points as a share of the grid.
        batch_size: texts of a step.
        texts: most calibration texts that are used, spread over lengths.
    """

    stage: ClassVar[Stage] = Stage.RANGES

    steps: int = 150
    learning_rate: float = 0.02
    batch_size: int = 8
    texts: int = 256

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, 1)
        object.__setattr__(self, "learning_rate", check_positive("learning_rate", self.learning_rate))
        check_integer("batch_size", self.batch_size, 1)
        check_integer("texts", self.texts, 2)


@dataclass(frozen=True, kw_only=True)
class IntegerFunctions(Pass, name="integer-functions"):
    """GELU, softmax and LayerNorm compute in integers, as I-BERT does, instead of in float."""

    stage: ClassVar[Stage] = Stage.RANGES
    rewrites: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class SplitGroups(Pass, name="split-groups"):
    """Activations in groups become one tensor a group, each with a range of its own: per-tensor PEG.

    Arguments:
        narrow: groups of at most this many channels go through one matrix product together. It reads several
            scales, so it is computed in float, of the same 8-bit numbers: on CPUs that costs less than a
            product for each. null makes a product for every group, as integer-only hardware needs.
        in_place: where only linear layers read a tensor, its largest group is not cut out. They read the
            whole tensor on that group's grid, with columns of zeros for all other channels: the same sum,
            with no permutation.
    """

    stage: ClassVar[Stage] = Stage.RANGES
    rewrites: ClassVar[bool] = True

    narrow: int | None = None
    in_place: bool = False

    def __post_init__(self) -> None:
        check_flag("in_place", self.in_place)
        if self.narrow is not None:
            check_integer("narrow", self.narrow, 1)


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
        late = first.rewrites and isinstance(second, BiasCorrection)
        if first.stage > second.stage or late:
            order = sorted(passes, key=lambda entry: (entry.stage, entry.rewrites))
            raise SpecError(
                f"passes: {first.variant_name} cannot come before {second.variant_name}; "
                f"the order that works is {', '.join(entry.variant_name for entry in order)}"
            )
    rounding = [entry.variant_name for entry in passes if entry.stage is Stage.WEIGHTS]
    if len(rounding) > 1:
        raise SpecError(f"passes: weights are rounded once, got {' and '.join(rounding)}; keep one")
    training = [entry.variant_name for entry in passes if entry.stage is Stage.TRAINING]
    if len(training) > 1:
        raise SpecError(f"passes: a model is trained once, got {' and '.join(training)}; keep one")
