"""How the ranges of a row are found on a task: two estimators, and the texts they read (appendix B.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from octavo.errors import SpecError
from octavo.experiments.table import TableRow
from octavo.spec.presets import recipe


@dataclass(frozen=True, kw_only=True)
class Ranges:
    """Estimators of weights and activations by their names, batch size and number of batches."""

    weights: str
    activations: str
    batch_size: int
    batches: int

    @staticmethod
    def of(row: TableRow) -> Ranges:
        """Return the ranges that a row of a search names."""
        weights, activations = (row.estimators.get(kind) for kind in ("weights", "activations"))
        size, count = row.batch_size, row.batches
        if not isinstance(weights, str) or not isinstance(activations, str) or size is None or count is None:
            raise SpecError(f"row {row.name}: names no estimators, batch size and number of batches")
        return Ranges(weights=weights, activations=activations, batch_size=size, batches=count)


ONE_SEQUENCE = ("min-max", 1, 1)
"""Estimator of activations, batch size and batches of the paper's section 5."""


def with_ranges(row: TableRow, best: Ranges) -> TableRow:
    """Return a row with the estimators and the calibration that its `ranges` ask for.

    `best` are the best ranges on the task.
    """
    if row.ranges == "settings" or row.recipe is None:
        return row
    single = row.ranges == "single"
    activations, size, count = ONE_SEQUENCE if single else (best.activations, best.batch_size, best.batches)
    estimators = {"activations": activations}
    weights = recipe(row.recipe).weights
    if weights is not None and weights.bits >= 8:  # below, ranges always come from the MSE
        estimators = {"weights": best.weights, **estimators}
    return replace(row, ranges="settings", estimators=estimators, batch_size=size, batches=count)
