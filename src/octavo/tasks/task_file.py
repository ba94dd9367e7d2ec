"""Tasks by name: GLUE's, a kind with its data, or a small YAML file that says once what a task is.

kind: classification
train: reviews.csv
dev: test.csv
text: review
label: stars
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml

from octavo.errors import DataError, OctavoError, SpecError, did_you_mean
from octavo.spec.plugins import broken_plugins, known
from octavo.tasks.glue import GLUE, unknown_task
from octavo.tasks.kinds import Task
from octavo.tasks.lines import read_lines
from octavo.tasks.reading.rows import Source
from octavo.tasks.similarity import SIMILARITY

TASKS: tuple[str, ...] = (*GLUE, *SIMILARITY)
ENDINGS = (".yaml", ".yml")
_FILES = ("train", "dev")


def find_task(task: str | Task, data: Source | None = None) -> str | Task:
    """Return what a name stands for: a task of GLUE or similarity as it is, else a task of the user's own.

    Arguments:
        task: a name, a kind such as `classification`, the path of a task file, or a task.
        data: what a task of one's own is scored on instead of what it names; GLUE's folder is left alone.
    """
    if isinstance(task, str):
        if task in TASKS:
            return task
        if task.endswith(ENDINGS):
            task = read_task_file(task)
        elif known(task, Task.variants()):
            task = Task.variants()[task]()
        else:
            raise unknown_task(task, (*TASKS, *Task.variants(), "a YAML file"), broken_plugins())
    return task if data is None else replace(task, dev=data)


def read_task_file(path: str | Path) -> Task:
    """Return the task that a YAML file describes; its files are found from its own folder."""
    path = Path(path)
    try:
        document = yaml.safe_load("\n".join(read_lines(path)))
    # a date such as 2024-99-99 makes the YAML reader itself raise ValueError
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise DataError(f"{path} is no task file; write keys such as kind: classification, train: FILE.csv")
    try:
        return task_from_dict(document, path.parent)
    except OctavoError as error:
        raise type(error)(f"{path}: {error}") from None


def task_from_dict(document: Mapping[str, Any], folder: Path = Path()) -> Task:
    """Return the task of plain data; files are found from `folder`."""
    kinds = Task.variants()
    kind = str(document.get("kind", ""))
    if not known(kind, kinds):
        given = f"unknown kind {kind!r}" if kind else "no kind is given"
        raise SpecError(f"{given}; there are {', '.join(kinds)}{did_you_mean(kind, kinds)}{broken_plugins()}")
    options = {field.name: field for field in fields(kinds[kind])}
    values: dict[str, Any] = {}
    for key, value in document.items():
        if key == "kind":
            continue
        if key not in options:
            allowed = ", ".join(["kind", *options])
            raise SpecError(f"unknown key {key!r}; {kind} has {allowed}{did_you_mean(str(key), options)}")
        values[key] = (
            folder / _text(key, value) if key in _FILES else _value(key, value, options[key].default)
        )
    return kinds[kind](**values)


def _value(key: str, value: Any, default: Any) -> Any:
    """Return a value of the type that a field's default has; several names are a tuple."""
    if isinstance(value, list) and isinstance(default, str | tuple):
        return tuple(_text(key, entry) for entry in value)
    if isinstance(default, float | int) and not isinstance(value, bool):
        if isinstance(value, type(default)) or (isinstance(value, int) and isinstance(default, float)):
            return value
        raise SpecError(f"{key} must be a number such as {default}, got {value!r}")
    return (_text(key, value),) if key in ("metrics", "labels", "vectors") else _text(key, value)


def _text(key: str, value: Any) -> str:
    # labels such as 1 and 5 are numbers to YAML
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise SpecError(f"{key} must be text, got {value!r}; put it in quotes")
    return str(value)
