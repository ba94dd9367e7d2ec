"""AdaRound: every weight goes to the grid point below or above it, so that its layer keeps its output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from octavo.graph import QuantizedEncoder
from octavo.methods.context import Batches, Context
from octavo.methods.rounding.rounding import Problem, Rounding, round_model
from octavo.numerics.adaround import Rounded, Schedule, adaround
from octavo.progress import Progress, silent
from octavo.spec import AdaRound


def run(model: QuantizedEncoder, done: AdaRound, context: Context) -> QuantizedEncoder:
    """Round the weights of a model whose weights are on their grids, as the pass says."""
    round_weights(model, context.batches, done, work=context.work, progress=context.progress)
    return model.rewritten(done)


def round_weights(
    model: QuantizedEncoder,
    batches: Batches,
    settings: AdaRound,
    *,
    work: Path | None = None,
    progress: Progress = silent,
) -> dict[str, tuple[float, float]]:
    """Round the weights of a model in place; see `round_model` for the arguments and the result."""
    options = asdict(settings)
    # said only where they differ from what was done before they were options: such folders go on
    if settings.flips:
        del options["flips"]
    if settings.shrinkage == 0:
        del options["shrinkage"]
    if settings.asymmetric:
        del options["asymmetric"]
    schedule = Schedule(
        iterations=settings.iterations,
        learning_rate=settings.step,
        weight=settings.weight,
        warmup=settings.warmup,
        beta=settings.beta,
    )

    def solve(problem: Problem, progress: Callable[[int], None]) -> Rounded:
        moments = problem.moments
        shift = (problem.weight.double() @ moments.shift).float() * settings.asymmetric
        return adaround(
            problem.weight,
            problem.scale,
            problem.bounds,
            moments.own.float(),
            shift,
            schedule,
            progress,
            flips=settings.flips,
        )

    rounding = Rounding(
        method="AdaRound",
        solve=solve,
        options=options,
        shrinkage=settings.shrinkage,
        steps=settings.iterations,
    )
    return round_model(model, batches, rounding, work, progress)
