"""A task as one function from a model to its score, for whatever tries many models on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from octavo.errors import ModelError
from octavo.tasks.evaluation import score_task
from octavo.tasks.kinds import Task
from octavo.tasks.model import Model
from octavo.tasks.task_file import find_task


def check_task(task: str | Task) -> None:
    """Refuse a name that is no task's, with the nearest one that is; needs neither model nor data."""
    find_task(task)


def task_scorer(task: str | Task, data: str | Path | None = None) -> Callable[[Model], float]:
    """Return a function that scores a model on a task, times 100.

    Arguments:
        task: glue/cola ... glue/wnli, similarity/stsb, or a task of the user's own.
        data: folder with GLUE's task folders; without it the task is read from the hub.
    """
    check_task(task)

    def score(model: Model) -> float:
        result = score_task(model, task, data=data).score
        if result is None:
            raise ModelError(f"{task} gives no score for {model.name}; choose another task")
        return result

    return score
