"""Which class of a task each output of a classifier stands for."""

from __future__ import annotations

import re
import warnings

from octavo.errors import OctavoWarning
from octavo.tasks.glue import GlueTask
from octavo.tasks.model import Model

_WHOLE = re.compile(r"-?\d+\.0+")
"""A whole number as frames write a column in which some label was missing."""


def label_mapping(model: Model, task: GlueTask) -> tuple[int, ...] | None:
    """Return the class in GLUE's order of each output of the model, by the names in its configuration.

    None where the names say nothing (LABEL_0, ...) or are others, which is warned of: outputs then follow
    GLUE's order. Case, spaces and hyphens in names do not matter.
    """
    given = getattr(model.config, "label2id", None) or {}
    named = {plain_label(name): int(index) for name, index in given.items()}
    if task.labels is None or not named:
        return None
    for names in (task.labels, task.spellings):
        mapping = _match(named, names)
        if mapping is not None:
            return mapping
    if not all(name.startswith("label_") for name in named):
        warnings.warn(
            f"{model.name} names its labels {', '.join(named)}, {task.name} {', '.join(task.labels)}; "
            "they are matched by index.",
            OctavoWarning,
            stacklevel=2,
        )
    return None


def _match(named: dict[str, int], names: tuple[str, ...]) -> tuple[int, ...] | None:
    classes = {
        named[plain_label(name)]: index for index, name in enumerate(names) if plain_label(name) in named
    }
    if len(named) != len(names) or sorted(classes) != list(range(len(names))):
        return None
    return tuple(classes[output] for output in range(len(names)))


def plain_label(label: object) -> str:
    """Return a label by which names are compared: case, spaces and hyphens do not matter."""
    return label_name(label).lower().replace(" ", "_").replace("-", "_")


def label_name(value: object) -> str:
    """Return a label as it is written; 3, 3.0 and what a table writes for them are one.

    >>> label_name(3.0), label_name("3.0"), label_name("v3.0")
    ('3', '3', 'v3.0')
    """
    name = str(value).strip()
    return name.partition(".")[0] if _WHOLE.fullmatch(name) else name
