"""The table of passes: how each one that a recipe may name is carried out, and done again on loading.

To add a pass: its frozen type in `octavo.spec.passes`, a file here that carries it out, and its line below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from octavo import spec
from octavo.graph import QuantizedEncoder
from octavo.graph.rewrites.integer import integer_only
from octavo.graph.rewrites.split import apply_split, split_groups
from octavo.methods.allocation import budget
from octavo.methods.calibration import range_tuning, token_clipping
from octavo.methods.context import Context
from octavo.methods.correction import biases
from octavo.methods.equalization import equalizing, spilling
from octavo.methods.rounding import adaround, gptq
from octavo.spec import Pass, Recipe

Run = Callable[[QuantizedEncoder, Any, Context], QuantizedEncoder]
Replay = Callable[[QuantizedEncoder, Any, Mapping[str, Tensor]], QuantizedEncoder]
Plan = Callable[[Recipe, Any, Context], Recipe]


def _as_it_is(model: QuantizedEncoder, done: Pass, saved: Mapping[str, Tensor]) -> QuantizedEncoder:
    """Do nothing: what the pass changed is in the saved tensors."""
    return model.rewritten(done)


@dataclass(frozen=True, kw_only=True)
class Method:
    """How a pass is carried out.

    Arguments:
        run: does it to a model, and records it there (`QuantizedEncoder.rewritten`); None for a pass that
            plans, or that is left to training.
        plan: changes the recipe before quantizers are attached, instead.
        replay: does to a freshly attached model what the pass did to the saved one, whose tensors it is
            given; by default nothing, as for a pass that only chooses numbers.
        needs_texts: the pass reads calibration data.
        purpose: what for, as the end of "recipe 'int8' ...".
        shares_calibration: recipes with this pass may find ranges from the same forward passes as others:
            it changes neither weights nor the graph before ranges are found.
        needs_float: the pass compares with the float model, weights as they were before rounding.
    """

    run: Run | None = None
    plan: Plan | None = None
    replay: Replay = _as_it_is
    needs_texts: bool = False
    purpose: str = ""
    shares_calibration: bool = False
    needs_float: bool = False


def _equalizing(purpose: str) -> Method:
    return Method(run=equalizing.run, replay=equalizing.replay, needs_texts=True, purpose=purpose)


_TRAINING = Method(shares_calibration=True)

PASSES: dict[type[Pass], Method] = {
    spec.AllocateBits: Method(
        plan=budget.plan,
        needs_texts=True,
        purpose="allocates bits by second derivatives",
        shares_calibration=True,
    ),
    spec.Fold: _equalizing("folds ranges found from data"),
    spec.SmoothQuant: _equalizing("smooths ranges found from data"),
    spec.MigrateGamma: _equalizing("watches what norms make of data"),
    spec.ShiftAndScale: _equalizing("shifts and scales by errors found from data"),
    spec.Equalize: _equalizing("equalizes channels by errors found from data"),
    spec.Spill: Method(
        run=spilling.run,
        replay=spilling.replay,
        needs_texts=True,
        purpose="spills ranges found from data",
    ),
    spec.AdaRound: Method(
        run=adaround.run,
        needs_texts=True,
        purpose="rounds weights with AdaRound",
    ),
    spec.Gptq: Method(
        run=gptq.run,
        needs_texts=True,
        purpose="rounds weights with GPTQ",
    ),
    spec.BiasCorrection: Method(
        run=biases.run,
        replay=biases.replay,
        needs_texts=True,
        purpose="corrects biases by mean errors on data",
        shares_calibration=True,
        needs_float=True,
    ),
    spec.ClipTokens: Method(
        run=token_clipping.run,
        needs_texts=True,
        purpose="chooses ranges by the error of outputs",
        shares_calibration=True,
    ),
    spec.TuneRanges: Method(
        run=range_tuning.run,
        needs_texts=True,
        purpose="learns ranges on the error of outputs",
        shares_calibration=True,
    ),
    spec.IntegerFunctions: Method(
        run=lambda model, done, context: integer_only(model),
        replay=lambda model, done, saved: integer_only(model),
        shares_calibration=True,
    ),
    spec.SplitGroups: Method(
        run=lambda model, done, context: split_groups(model, done.narrow, done.in_place),
        replay=apply_split,
        shares_calibration=True,
    ),
    spec.LearnedRanges: _TRAINING,
    spec.FixedRanges: _TRAINING,
    spec.RunningRanges: _TRAINING,
}
"""Every pass; a test names the one that is missing."""


def replay(model: QuantizedEncoder, done: Pass, saved: Mapping[str, Tensor]) -> QuantizedEncoder:
    """Do again what a pass did to a model that was saved with these tensors."""
    return PASSES[type(done)].replay(model, done, saved)
