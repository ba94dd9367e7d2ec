"""Post-training quantization: attach a recipe, watch ranges on calibration data, fix them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from octavo.errors import CalibrationError
from octavo.graph import Encoder, QuantizedEncoder, State, Text, attach, fix_weights
from octavo.graph.batches import without_padding
from octavo.graph.quantizers.watch import channel_extremes
from octavo.graph.rewrites.fold import folded_sites, unfoldable_sites
from octavo.graph.rewrites.integer import integer_only
from octavo.methods.calibration.clipping import may_clip, warn_of_clipping
from octavo.methods.calibration.permutation import permute_groups, permutes
from octavo.methods.equalization.folding import fold_ranges
from octavo.methods.rounding.adaround import round_weights
from octavo.spec import AdaRound, Recipe

Calibration = Sequence[Text] | Iterable[Mapping[str, Tensor]]
Progress = Callable[[int, int], None]


def quantize(
    encoder: Encoder,
    recipe: Recipe,
    calibration: Calibration | None = None,
    *,
    batch_size: int = 1,
    seed: int = 0,
    max_length: int | None = None,
    work: str | Path | None = None,
    progress: Progress | None = None,
) -> QuantizedEncoder:
    """Quantize an encoder by a recipe.

    Arguments:
        calibration: texts (strings, or pairs of strings), or batches as a data loader gives them;
            may be left out when the recipe has no static activation ranges and rounds to nearest.
        batch_size: texts per batch; it matters to estimators that average over batches.
        seed: the order in which texts are read, which matters to the same estimators.
        work: a folder where AdaRound keeps the weights it has finished; the same call goes on from there.
        progress: called with (steps done, steps in all), for rounding and then for calibration.
    """
    model = attach(encoder, recipe)
    if recipe.integer_functions:
        model = integer_only(model)
    if folded_sites(model) or unfoldable_sites(model):
        if calibration is None:
            raise CalibrationError(
                f"recipe {recipe.name!r} folds ranges found from data; give calibration texts"
            )
        model = fold_ranges(model, batches_of(encoder, calibration, batch_size, seed, max_length))
    fix_weights(model)
    rounds = isinstance(recipe.rounding, AdaRound)
    if not rounds and not needs_calibration(model):
        finish(model)
        return model
    if calibration is None:
        purpose = "rounds weights with AdaRound" if rounds else "finds activation ranges from data"
        raise CalibrationError(f"recipe {recipe.name!r} {purpose}; give calibration texts")
    batches = batches_of(encoder, calibration, batch_size, seed, max_length)
    if isinstance(recipe.rounding, AdaRound):
        folder = None if work is None else Path(work)
        round_weights(model, encoder, batches, recipe.rounding, work=folder, progress=progress)
    if needs_calibration(model):
        calibrate(model, batches, progress=progress)
    finish(model)
    model.provenance = provenance(encoder, calibration, batch_size, seed)
    return model


def calibrate(
    model: QuantizedEncoder, batches: Sequence[Mapping[str, Tensor]], progress: Progress | None = None
) -> None:
    """Find the static ranges of a model's activations from batches, then fix them.

    Padding never counts: a padded batch is cut into rows of equal length first.
    """
    if not batches:
        raise CalibrationError("there is no calibration data; give at least one text")
    permute_groups(model, batches)
    observing = [q for q in model.quantizers.values() if q.state is State.OBSERVE]
    with channel_extremes({name: q for name, q in model.quantizers.items() if may_clip(q)}) as extremes:
        for done, batch in enumerate(batches, start=1):
            for piece in without_padding(batch):
                model(piece)
            for quantizer in observing:
                quantizer.commit()
            if progress is not None:
                progress(done, len(batches))
    finish(model)
    warn_of_clipping(model, extremes)


def needs_calibration(model: QuantizedEncoder) -> bool:
    """Static ranges are found from data, and so is the permutation of groups whose ranges are dynamic."""
    observing = [q for q in model.quantizers.values() if q.state is State.OBSERVE]
    return any(not q.spec.dynamic or permutes(q) for q in observing)


def finish(model: QuantizedEncoder) -> None:
    """Fix whatever still observes."""
    for quantizer in model.quantizers.values():
        if quantizer.state is State.OBSERVE:
            quantizer.fix()


def batches_of(
    encoder: Encoder, calibration: Calibration, batch_size: int, seed: int, max_length: int | None
) -> list[Mapping[str, Tensor]]:
    """Texts in the seed's order, or the batches that were given."""
    if isinstance(calibration, str | Mapping):
        raise CalibrationError("calibration is a single item; give a list of texts or of batches")
    if batch_size < 1:
        raise CalibrationError(f"a batch size of {batch_size} was asked for; use 1 or more")
    items: list[Any] = list(calibration)
    if items and all(isinstance(item, str) or _is_pair(item) for item in items):
        order = list(range(len(items)))
        random.Random(seed).shuffle(order)
        return [batch for _, batch in encoder.batches(items, batch_size, max_length, order=order)]
    for item in items:
        if not isinstance(item, Mapping) or "input_ids" not in item:
            raise CalibrationError(
                f"calibration holds a {type(item).__name__}; "
                "give texts, pairs of texts, or batches with input_ids"
            )
    return items


def _is_pair(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and all(isinstance(text, str) for text in item)


def provenance(encoder: Encoder, calibration: Any, batch_size: int, seed: int) -> dict[str, Any]:
    """Where a model's ranges come from."""
    described: dict[str, Any] = {"model": encoder.name, "seed": seed, "batch_size": batch_size}
    if isinstance(calibration, Sequence):
        digest = hashlib.sha256(repr(list(calibration)).encode()).hexdigest()
        described["calibration"] = {"texts": len(calibration), "sha256": digest}
    return described
