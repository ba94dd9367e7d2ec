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
from octavo.methods.context import Context
from octavo.methods.equalization import folding
from octavo.methods.rounding import adaround
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
            plans, or that needs labels and is left to training.
        plan: changes the recipe before quantizers are attached, instead.
        replay: does to a freshly attached model what the pass did to the saved one, whose tensors it is
            given; by default nothing, as for a pass that only chooses numbers.
        needs_texts: the pass reads calibration data.
        purpose: what for, as the end of "recipe 'int8' ...".
        shares_calibration: recipes with this pass may find ranges from the same forward passes as others:
            it changes neither weights nor the graph before ranges are found.
    """

    run: Run | None = None
    plan: Plan | None = None
    replay: Replay = _as_it_is
    needs_texts: bool = False
    purpose: str = ""
    shares_calibration: bool = False


_TRAINING = Method(shares_calibration=True)

PASSES: dict[type[Pass], Method] = {
    spec.AllocateBits: Method(
        plan=budget.plan,
        needs_texts=True,
        purpose="allocates bits by second derivatives",
        shares_calibration=True,
    ),
    spec.Fold: Method(
        run=folding.run,
        replay=folding.replay,
        needs_texts=True,
        purpose="folds ranges found from data",
    ),
    spec.AdaRound: Method(
        run=adaround.run,
        needs_texts=True,
        purpose="rounds weights with AdaRound",
    ),
    spec.IntegerFunctions: Method(
        run=lambda model, done, context: integer_only(model),
        replay=lambda model, done, saved: integer_only(model),
        shares_calibration=True,
    ),
    spec.SplitGroups: Method(
        run=lambda model, done, context: split_groups(model),
        replay=lambda model, done, saved: apply_split(model),
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
