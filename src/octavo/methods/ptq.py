"""Post-training quantization: attach a recipe, watch ranges on calibration data, fix them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from octavo.errors import CalibrationError
from octavo.graph import Encoder, QuantizedEncoder, State, Text, attach, fix_weights
from octavo.graph.batches import without_padding
from octavo.methods.permutation import permute_groups
from octavo.spec import Recipe

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
    progress: Progress | None = None,
) -> QuantizedEncoder:
    """Quantize an encoder by a recipe.

    Arguments:
        calibration: texts (a string, or a pair of strings), or batches of token ids such as a data loader gives; may be
            left out when the recipe has no static activation ranges.
        batch_size: texts per batch; it matters to estimators that average over batches.
        seed: the order in which texts are read, which matters to the same estimators.
        progress: called with (batches done, batches in all).
    """
    model = attach(encoder, recipe)
    fix_weights(model)
    if not _needs_calibration(model):
        _fix(model)
        return model
    if calibration is None:
        raise CalibrationError(f"recipe {recipe.name!r} has static activation ranges; give calibration texts")
    batches = list(_batches(encoder, calibration, batch_size, seed, max_length))
    calibrate(model, batches, progress=progress)
    model.provenance = _provenance(encoder, calibration, batch_size, seed)
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
    for done, batch in enumerate(batches, start=1):
        for piece in without_padding(batch):
            model(piece)
        for quantizer in observing:
            quantizer.commit()
        if progress is not None:
            progress(done, len(batches))
    _fix(model)


def _needs_calibration(model: QuantizedEncoder) -> bool:
    return any(q.state is State.OBSERVE and not q.spec.dynamic for q in model.quantizers.values())


def _fix(model: QuantizedEncoder) -> None:
    for quantizer in model.quantizers.values():
        if quantizer.state is State.OBSERVE:
            quantizer.fix()


def _batches(
    encoder: Encoder, calibration: Calibration, batch_size: int, seed: int, max_length: int | None
) -> Iterator[Mapping[str, Tensor]]:
    if not isinstance(calibration, Sequence) or (calibration and isinstance(calibration[0], Mapping)):
        for batch in calibration:
            if not isinstance(batch, Mapping) or "input_ids" not in batch:
                raise CalibrationError("a calibration batch must be a mapping with input_ids; give texts or such batches")
            yield batch
        return
    texts = list(calibration)
    random.Random(seed).shuffle(texts)
    for start in range(0, len(texts), batch_size):
        for _, batch in encoder.batches(texts[start : start + batch_size], batch_size, max_length):
            yield batch


def _provenance(encoder: Encoder, calibration: Any, batch_size: int, seed: int) -> dict[str, Any]:
    described: dict[str, Any] = {"model": encoder.name, "seed": seed, "batch_size": batch_size}
    if isinstance(calibration, Sequence):
        digest = hashlib.sha256(repr(list(calibration)).encode()).hexdigest()
        described["calibration"] = {"texts": len(calibration), "sha256": digest}
    return described
