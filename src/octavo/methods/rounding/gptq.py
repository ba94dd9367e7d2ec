"""GPTQ: inputs of a linear layer are rounded one after another, each making up for the errors before it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from octavo.errors import OctavoWarning
from octavo.graph import QuantizedEncoder
from octavo.methods.context import Batches, Context
from octavo.methods.rounding.layers import find_shared_layers
from octavo.methods.rounding.rounding import Problem, Rounding, round_model
from octavo.numerics.adaround import Rounded
from octavo.numerics.gptq import gptq
from octavo.progress import Progress, silent
from octavo.spec import Gptq


def run(model: QuantizedEncoder, done: Gptq, context: Context) -> QuantizedEncoder:
    """Round the weights of a model whose weights are on their grids, as the pass says."""
    if done.only_shared and not find_shared_layers(model):
        return model.rewritten(done)
    round_weights(model, context.batches, done, work=context.work, progress=context.progress)
    return model.rewritten(done)


def round_weights(
    model: QuantizedEncoder,
    batches: Batches,
    settings: Gptq,
    *,
    work: Path | None = None,
    progress: Progress = silent,
) -> dict[str, tuple[float, float]]:
    """Round the weights of a model in place; see `round_model` for the arguments and the result.

    Fewer rows (tokens, as a rule) than a layer has inputs are told once, with how many texts would do.
    """
    short: dict[str, tuple[int, int]] = {}

    def solve(problem: Problem, progress: Callable[[int], None]) -> Rounded:
        moments, inputs = problem.moments, problem.weight.shape[1]
        if moments.rows < inputs:
            short[problem.site.name] = moments.rows, inputs
        weight = problem.weight
        return gptq(
            weight,
            problem.scale,
            problem.bounds,
            moments.own,
            weight.double() @ moments.shift if settings.asymmetric else None,
            damping=settings.damping,
            order=settings.order,
            block=settings.block,
            sweeps=settings.sweeps,
        )

    chosen = asdict(settings)
    if not settings.only_shared:  # said only where it is: work folders from before it was an option go on
        del chosen["only_shared"]
    options = {"gptq": chosen}
    rounding = Rounding(
        method="GPTQ",
        solve=solve,
        options=options,
        shrinkage=settings.shrinkage,
        weighted=settings.weighted,
        relative=settings.relative,
        only_shared=settings.only_shared,
    )
    losses = round_model(model, batches, rounding, work, progress)
    if short:
        _warn(short, sum(len(batch["input_ids"]) for batch in batches))
    return losses


def _warn(short: dict[str, tuple[int, int]], texts: int) -> None:
    name = max(short, key=lambda site: short[site][1] / short[site][0])
    rows, inputs = short[name]
    others = f", and {len(short) - 1} more weights have too few" if len(short) > 1 else ""
    warnings.warn(
        f"GPTQ: {texts} texts give {name} {rows} rows for its {inputs} inputs{others}: its Hessian lacks "
        "full rank, and damping and shrinkage stand in for the rest; about "
        f"{math.ceil(texts * inputs / rows)} such texts would do",
        OctavoWarning,
        stacklevel=3,
    )
