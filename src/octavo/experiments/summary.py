"""From cells to the numbers of a table: medians over seeds of the best setting, means over tasks."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.experiments.table import Table, TableRow


@dataclass(frozen=True, kw_only=True)
class RowScore:
    """The median over seeds of a row on a task, with its spread and the setting that was best.

    Arguments:
        change: the median of what the seeds change against the fine-tuned models that they start from; None
            where results do not say what these score.
    """

    median: float
    change: float | None
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
    changes = [each["score"] - each["start_score"] for each in results if each.get("start_score") is not None]
    return RowScore(
        median=statistics.median(scores),
        change=statistics.median(changes) if len(changes) == len(scores) else None,
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


def mean_change(row: TableRow, base: TableRow, tasks: Sequence[str], scores: Scores) -> float | None:
    """Return the mean over some tasks of what a row changes, None if one is missing.

    Against the models that it starts from, or where these are not known against the row `base`.
    """
    changes = [_change(scores.get((row.name, task)), scores.get((base.name, task))) for task in tasks]
    known = [change for change in changes if change is not None]
    return sum(known) / len(known) if known and len(known) == len(changes) else None


def _change(score: RowScore | None, base: RowScore | None) -> float | None:
    if score is None:
        return None
    if score.change is not None:
        return score.change
    return None if base is None else score.median - base.median


def paper_mean(row: TableRow, tasks: Sequence[str]) -> float | None:
    """Return the paper's mean of a row over the same tasks, None if it lacks one."""
    numbers = [row.paper[task] for task in tasks if task in row.paper]
    return sum(numbers) / len(numbers) if numbers and len(numbers) == len(tasks) else None
