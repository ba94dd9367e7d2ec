"""From cells to the numbers of a table: medians over seeds of the best setting, means over tasks."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.experiments.table import Table, TableRow


@dataclass(frozen=True, kw_only=True)
class RowScore:
    """The median over seeds of a row on a task, with its spread and the setting that was best."""

    median: float
    low: float
    high: float
    seeds: int
    setting: Mapping[str, Any] | None
    partial: bool


Scores = dict[tuple[str, str], RowScore]
"""Scores by row and task."""


def summarize(results: Iterable[Mapping[str, Any]]) -> Scores:
    """Return the score of every row and task: of several settings the one with the best median."""
    groups: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for result in results:
        cell = result["cell"]
        setting = repr({key: value for key, value in cell.items() if key != "seed"})
        groups.setdefault((cell["row"], cell["task"]), {}).setdefault(setting, []).append(result)
    return {key: _score(_best(list(settings.values()))) for key, settings in groups.items()}


def _best(groups: Sequence[list[Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    return max(groups, key=lambda group: (len(group), statistics.median(each["score"] for each in group)))


def _score(results: Sequence[Mapping[str, Any]]) -> RowScore:
    scores = [float(each["score"]) for each in results]
    return RowScore(
        median=statistics.median(scores),
        low=min(scores),
        high=max(scores),
        seeds=len(scores),
        setting=results[0]["cell"].get("hyperparameters"),
        partial=any(part["partial"] for part in results[0].get("data", {}).values()),
    )


def shown_tasks(table: Table, scores: Scores) -> tuple[str, ...]:
    """Return the tasks of a table that have any result."""
    return tuple(task for task in table.tasks if any((row.name, task) in scores for row in table.rows))


def mean_score(row: TableRow, tasks: Sequence[str], scores: Scores) -> float | None:
    """Return the mean of a row over some tasks, None if one is missing."""
    medians = [scores[(row.name, task)].median for task in tasks if (row.name, task) in scores]
    return sum(medians) / len(medians) if medians and len(medians) == len(tasks) else None


def paper_mean(row: TableRow, tasks: Sequence[str]) -> float | None:
    """Return the paper's mean of a row over the same tasks, None if it lacks one."""
    numbers = [row.paper[task] for task in tasks if task in row.paper]
    return sum(numbers) / len(numbers) if numbers and len(numbers) == len(tasks) else None
