"""How long the missing cells of a grid will take, by the cells that are done."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import DataError
from octavo.experiments.cell import Cell
from octavo.experiments.results import Results
from octavo.tasks.evaluation import read_examples
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


def count_steps(cells: Sequence[Cell], results: Results, data: str | Path | None) -> dict[str, int]:
    """Return how many steps each cell trains, by its path; 0 without training.

    They are counted over the examples that results in the folder name, else over those in the files, else
    over the published ones: nothing is fetched to be counted.
    """
    tasks = {cell.task for cell in cells if cell.hyper is not None}
    named = _named_examples(results) if tasks else {}
    examples = {task: named.get(task) or _examples(task, data) for task in tasks}
    return {cell.path: _steps(cell, examples.get(cell.task, 0)) for cell in cells}


def estimate(
    cells: Iterable[Cell], results: Iterable[Mapping[str, Any]], steps: Mapping[str, int]
) -> list[CellEstimate]:
    """Return what each cell will take: the median of the row on the task, else of its method.

    Training counts by its steps (`count_steps`). Seconds are those of the machines that the results in the
    folder come from.
    """
    speeds: dict[tuple[str, ...], list[float]] = {}
    for result in results:
        cell, training = result["cell"], result.get("training") or {}
        if "seconds" in result:
            speed = float(result["seconds"]) / max(1, training.get("steps", 1))
            for key in _keys(cell["row"], cell["task"], cell["method"]):
                speeds.setdefault(key, []).append(speed)
    return [_estimate(cell, steps[cell.path], speeds) for cell in cells]


def total_seconds(estimates: Sequence[CellEstimate]) -> float | None:
    """Return the sum over all cells, None if one of them cannot be told."""
    seconds = [each.seconds for each in estimates if each.seconds is not None]
    return sum(seconds) if len(seconds) == len(estimates) else None


def _named_examples(results: Results) -> dict[str, int]:
    """Return how many training examples the results in a folder say that its tasks have."""
    return {
        str(result["cell"].get("task")): examples
        for result in results.all()
        if (examples := result.get("data", {}).get("train", {}).get("examples"))
    }


def _examples(task: str, data: str | Path | None) -> int:
    described = task_by_short_name(task)
    if data is not None:
        with suppress(DataError):  # the cells of the task will say what is wrong with its files
            return len(read_examples(described, data, "train"))
    return described.split("train").examples


def _steps(cell: Cell, examples: int) -> int:
    return 0 if cell.hyper is None else math.ceil(examples / cell.hyper.batch_size) * cell.hyper.epochs


def _estimate(cell: Cell, steps: int, speeds: Mapping[tuple[str, ...], Sequence[float]]) -> CellEstimate:
    known = next((speeds[key] for key in _keys(cell.row, cell.task, cell.method) if key in speeds), None)
    seconds = None if known is None else statistics.median(known) * max(1, steps)
    return CellEstimate(cell=cell, steps=steps, seconds=seconds)


def _keys(row: str, task: str, method: str) -> tuple[tuple[str, ...], ...]:
    """Return what a cell may be likened to, the nearest first."""
    return ("row", row, task), ("method", method, task), ("method", method)
