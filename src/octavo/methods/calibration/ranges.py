"""Calibration of one model: watch what passes its sites, then fix their ranges."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.errors import CalibrationError
from octavo.graph import QuantizedEncoder, Quantizer, State
from octavo.graph.batches import of_equal_length, without_padding
from octavo.graph.quantizers.watch import channel_extremes
from octavo.methods.calibration.clipping import may_clip, warn_of_clipping
from octavo.methods.calibration.permutation import permute_groups, permutes
from octavo.methods.context import Batches
from octavo.progress import Progress, silent


def calibrate(model: QuantizedEncoder, batches: Batches, progress: Progress = silent) -> None:
    """Find the static ranges of a model's activations from batches, then fix them.

    Padding never counts: a padded batch is cut into rows of equal length first.
    """
    if not batches:
        raise CalibrationError("there is no calibration data; give at least one text")
    permute_groups(model, batches)
    observing = [q for q in model.quantizers.values() if q.state is State.OBSERVE]
    with channel_extremes({name: q for name, q in model.quantizers.items() if may_clip(q)}) as extremes:
        observe(model, observing, batches, progress)
    finish(model)
    warn_of_clipping(model, extremes)


def observe(
    model: QuantizedEncoder, observing: Sequence[Quantizer], batches: Batches, progress: Progress
) -> None:
    """Run all batches; texts of one length together where no range depends on their order or batches."""
    ordered = any(q.spec.estimator.reads_order for q in observing if not q.spec.dynamic)
    batches = batches if ordered else of_equal_length(batches)
    for done, batch in enumerate(batches, start=1):
        for part in without_padding(batch):
            model(part)
        for quantizer in observing:
            quantizer.commit()
        progress(done, len(batches))


def needs_calibration(model: QuantizedEncoder) -> bool:
    """Say whether data is needed: for static ranges, and for the groups of dynamic ranges that permute."""
    observing = [q for q in model.quantizers.values() if q.state is State.OBSERVE]
    return any(not q.spec.dynamic or permutes(q) for q in observing)


def finish(model: QuantizedEncoder) -> None:
    """Fix whatever still observes."""
    for quantizer in model.quantizers.values():
        if quantizer.state is State.OBSERVE:
            quantizer.fix()
