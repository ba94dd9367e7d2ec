"""Which ranges were best on a task: the row of the paper's table 9 with the best median."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from octavo.experiments.grid import row_cells
from octavo.experiments.ranges import Ranges
from octavo.experiments.results import Results
from octavo.experiments.settings import Settings
from octavo.experiments.table import load_table

SEARCH = "range-estimators"


def best_ranges(tasks: Iterable[str], settings: Settings, layers: int, results: Results) -> dict[str, Ranges]:
    """Return the best ranges by task; tasks on which a score of the search is missing are left out."""
    found = {task: _best(task, settings, layers, results) for task in tasks}
    return {task: ranges for task, ranges in found.items() if ranges is not None}


def _best(task: str, settings: Settings, layers: int, results: Results) -> Ranges | None:
    """Return the ranges with the best median on a task, the first of equals; None before all are done."""
    medians: dict[Ranges, float] = {}
    for row in load_table(SEARCH).rows:
        done = [results.get(cell) for cell in row_cells(row, task, settings, layers)]
        scores = [float(result["score"]) for result in done if result is not None]
        if len(scores) < len(done):
            return None
        medians[Ranges.of(row)] = statistics.median(scores)
    return max(medians, key=medians.__getitem__)
