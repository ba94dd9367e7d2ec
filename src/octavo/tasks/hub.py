"""Reading GLUE from the Hugging Face hub, for when no folder of files is given."""

from __future__ import annotations

import importlib
from typing import Any

from octavo.errors import DataError, MissingExtraError
from octavo.tasks.examples import Examples
from octavo.tasks.glue import GlueTask, glue_task
from octavo.tasks.glue_files import label_array
from octavo.tasks.texts import Text

REPOSITORY = "nyu-mll/glue"


def read_glue_hub(task: GlueTask | str, split: str | None = None) -> Examples:
    """Return one split of a task from the hub; needs the extra `hub`."""
    task = glue_task(task) if isinstance(task, str) else task
    chosen = task.split(split)
    table = _load(task, chosen.hub_name)
    columns = [list(table[name]) for name in task.hub_columns]
    texts: list[Text] = columns[0] if len(columns) == 1 else list(zip(columns[0], columns[1], strict=True))
    return Examples(
        task=task.name,
        split=chosen.name,
        texts=tuple(texts),
        labels=label_array(task, list(table["label"])),
        full=chosen.examples,
        source=f"hub:{REPOSITORY}/{task.config}/{chosen.hub_name}",
    )


def _load(task: GlueTask, split: str) -> Any:
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise MissingExtraError(
            "hub", f"Reading {task.name} without a folder of GLUE's files (--data)"
        ) from error
    try:
        return datasets.load_dataset(REPOSITORY, task.config, split=split)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{task.name} could not be read from the hub ({error}); "
            "check the connection, or give a folder of GLUE's files (--data)."
        ) from error
