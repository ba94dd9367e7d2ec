"""How long the missing cells of a grid will take, by the cells that are done."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.experiments.cell import Cell
from octavo.tasks.glue import task_by_short_name


@dataclass(frozen=True, kw_only=True)
class CellEstimate:
    """A cell with its steps of training (0 without) and its seconds, None where nothing like it is done."""

    cell: Cell
    steps: int
    seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"cell": self.cell.path, "steps": self.steps, "seconds": self.seconds}


def estimate(cells: Iterable[Cell], results: Iterable[Mapping[str, Any]]) -> list[CellEstimate]:
    """Return what each cell will take: the median of the row on the task, else of its method.

    Training counts by steps over the published data. Seconds are those of the machines that the results in
    the folder come from.
    """
    speeds: dict[tuple[str, ...], list[float]] = {}
    for result in results:
        cell, training = result["cell"], result.get("training") or {}
        if "seconds" in result:
            speed = float(result["seconds"]) / max(1, training.get("steps", 1))
            for key in _keys(cell["row"], cell["task"], cell["method"]):
                speeds.setdefault(key, []).append(speed)
    return [_estimate(cell, speeds) for cell in cells]


def total_seconds(estimates: Sequence[CellEstimate]) -> float | None:
    """Return the sum over all cells, None if one of them cannot be told."""
    seconds = [each.seconds for each in estimates if each.seconds is not None]
    return sum(seconds) if len(seconds) == len(estimates) else None


def _estimate(cell: Cell, speeds: Mapping[tuple[str, ...], Sequence[float]]) -> CellEstimate:
    steps = 0
    if cell.hyper is not None:
        examples = task_by_short_name(cell.task).split("train").examples
        steps = math.ceil(examples / cell.hyper.batch_size) * cell.hyper.epochs
    known = next((speeds[key] for key in _keys(cell.row, cell.task, cell.method) if key in speeds), None)
    seconds = None if known is None else statistics.median(known) * max(1, steps)
    return CellEstimate(cell=cell, steps=steps, seconds=seconds)


def _keys(row: str, task: str, method: str) -> tuple[tuple[str, ...], ...]:
    """Return what a cell may be likened to, the nearest first."""
    return ("row", row, task), ("method", method, task), ("method", method)
