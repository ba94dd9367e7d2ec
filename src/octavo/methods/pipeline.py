"""The pipeline: attach a recipe, carry out its passes stage by stage, and find the ranges in between."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from octavo.errors import OctavoWarning
from octavo.graph import Encoder, QuantizedEncoder, attach, fix_weights
from octavo.graph.quantizers.importance import weigh_channels
from octavo.methods.calibration.ranges import calibrate, finish, needs_calibration
from octavo.methods.calibration.together import calibrate_together
from octavo.methods.context import Calibration, Context
from octavo.methods.passes import PASSES
from octavo.progress import Progress, silent
from octavo.spec import Recipe, Stage


def quantize(
    encoder: Encoder,
    recipe: Recipe,
    calibration: Calibration | None = None,
    *,
    batch_size: int = 1,
    seed: int = 0,
    max_length: int | None = None,
    work: str | Path | None = None,
    progress: Progress = silent,
) -> QuantizedEncoder:
    """Quantize an encoder by a recipe.

    Arguments:
        calibration: texts (strings, or pairs of strings), or batches as a data loader gives them; may be left
            out when the recipe has no static activation ranges and no pass that reads data.
        batch_size: texts per batch; it matters to estimators that average over batches.
        seed: the order in which texts are read, which matters to the same estimators.
        work: a folder where passes that take long keep what they have finished; the same call resumes.
        progress: called with (steps done, steps in all), by each pass that takes long and by calibration.

    A pass that trains is left to `qat` and `distill`, with a warning.
    """
    context = Context(
        encoder=encoder,
        calibration=calibration,
        batch_size=batch_size,
        seed=seed,
        max_length=max_length,
        work=None if work is None else Path(work),
        progress=progress,
    )
    _warn_of_training(recipe)
    return carry_out(recipe, context)


def carry_out(recipe: Recipe, context: Context) -> QuantizedEncoder:
    """Return the model that a recipe makes of the context's encoder, up to training."""
    model = before_ranges(recipe, context)
    if needs_calibration(model):
        context.need(recipe.name, "finds activation ranges from data")
        calibrate(model, context.batches, context.progress)
    return after_ranges(model, context)


def quantize_together(
    encoder: Encoder,
    recipes: Sequence[Recipe],
    calibration: Calibration,
    *,
    batch_size: int = 1,
    seed: int = 0,
    max_length: int | None = None,
    progress: Progress = silent,
) -> list[QuantizedEncoder]:
    """Return the models that `quantize` makes of the recipes one by one, with as few passes as they allow."""
    context = Context(
        encoder=encoder,
        calibration=calibration,
        batch_size=batch_size,
        seed=seed,
        max_length=max_length,
        progress=progress,
    )
    models = [before_ranges(recipe, context) for recipe in recipes]
    waiting: dict[object, list[QuantizedEncoder]] = {}
    for position, model in enumerate(models):
        if needs_calibration(model):
            key = _weights_key(model) if _shares_calibration(model.recipe) else position
            waiting.setdefault(key, []).append(model)
    for group in waiting.values():
        calibrate_together(encoder, group, context.batches, progress)
    return [after_ranges(model, context) for model in models]


def before_ranges(recipe: Recipe, context: Context) -> QuantizedEncoder:
    """Return a model whose weights are on their grids and whose activations wait for calibration."""
    for entry in recipe.passes:
        plan = PASSES[type(entry)].plan
        if plan is not None:
            context.need(recipe.name, PASSES[type(entry)].purpose)
            recipe = plan(recipe, entry, context)
    model = _run(attach(context.encoder, recipe), Stage.FLOAT, context)
    if context.keep_float or any(PASSES[type(entry)].needs_float for entry in recipe.passes):
        model.float_model = model.without_quantizers()
    fix_weights(model)
    model = _run(model, Stage.WEIGHTS, context)
    weigh_channels(model)
    return model


def after_ranges(model: QuantizedEncoder, context: Context) -> QuantizedEncoder:
    """Return a calibrated model after the passes that need its ranges."""
    finish(model)
    model = _run(model, Stage.RANGES, context)
    if not context.keep_float:
        model.float_model = None
    if context.used_data:
        model.provenance = context.provenance()
    return model


def _run(model: QuantizedEncoder, stage: Stage, context: Context) -> QuantizedEncoder:
    """Return a model after the passes of one stage."""
    for entry in model.recipe.passes:
        method = PASSES[type(entry)]
        if entry.stage is stage and method.run is not None:
            if method.needs_texts:
                context.need(model.recipe.name, method.purpose)
            model = method.run(model, entry, context)
    return model


def _shares_calibration(recipe: Recipe) -> bool:
    return all(PASSES[type(entry)].shares_calibration for entry in recipe.passes)


def _weights_key(model: QuantizedEncoder) -> object:
    """Return what must be equal for models to share forward passes: weights, and whether order matters."""
    specs = {name: q.spec for name, q in model.quantizers.items()}
    weights = {name: s for name, s in specs.items() if model.quantizers[name].site.kind == "weight"}
    ordered = any(s.estimator.reads_order and not s.dynamic for n, s in specs.items() if n not in weights)
    return model.recipe.placement, ordered, tuple(weights.items())


def _warn_of_training(recipe: Recipe) -> None:
    names = [entry.variant_name for entry in recipe.passes if entry.stage is Stage.TRAINING]
    if names:
        warnings.warn(
            f"recipe {recipe.name!r} ends with training ({names[0]}): this is the model before it; "
            "train with `octavo qat`, or without labels with `octavo distill`",
            OctavoWarning,
            stacklevel=3,
        )
