"""A task as one function from a model to its score, for whatever tries many models on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from octavo.errors import ModelError
from octavo.tasks.evaluation import TASKS, score_task
from octavo.tasks.glue import unknown_task
from octavo.tasks.model import Model


def check_task(task: str) -> None:
    """Refuse a name that is no task's, with the nearest one that is; needs neither model nor data."""
    if task not in TASKS:
        raise unknown_task(task, TASKS)


def task_scorer(task: str, data: str | Path | None = None) -> Callable[[Model], float]:
    """Return a function that scores a model on a task, times 100.

    Arguments:
        task: glue/cola ... glue/wnli, or similarity/stsb.
        data: folder with GLUE's task folders; without it the task is read from the hub.
    """
    check_task(task)

    def score(model: Model) -> float:
        result = score_task(model, task, data=data).score
        if result is None:
            raise ModelError(f"{task} gives no score for {model.name}; choose another task")
        return result

    return score
