"""What a model's outputs stand for in the words of a user's data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from octavo.errors import DataError, ModelError
from octavo.tasks.kinds.task import Task, natural_order
from octavo.tasks.labels import plain_label
from octavo.tasks.model import Model

_SHOWN = 12
_ARE = {"regression": "numbers", "classification": "classes"}
_NUMBERED = "if it is the number of an output, say so in a task file: labels: [0, 1, ...]"


def model_labels(
    model: Model, given: Sequence[str], found: Sequence[str], where: Sequence[str]
) -> tuple[str, ...]:
    """Return the label of every output as the data writes it.

    Arguments:
        given: the labels in the order of the outputs, where the user named them.
        found, where: the labels of the data and the rows they stand in; one that no output stands for is an
            error.
    """
    names = _names(model, given, found)
    written = {plain_label(label): label for label in reversed(found)}
    known = {plain_label(name) for name in names}
    for label, place in zip(found, where, strict=True):
        if plain_label(label) not in known:
            raise DataError(
                f"{place}: label {label!r} is none of those that {model.name} knows ({_listed(names)}); "
                + (_NUMBERED if label.isdecimal() else "was it left out of training?")
            )
    return tuple(written.get(plain_label(name), name) for name in names)


def _names(model: Model, given: Sequence[str], found: Sequence[str]) -> tuple[str, ...]:
    stated: dict[Any, Any] = getattr(model.config, "id2label", None) or {}
    named = tuple(str(stated[index]) for index in sorted(stated, key=int))
    if given:
        if len(given) != len(named):
            raise ModelError(
                f"{len(given)} labels are given ({_listed(given)}), {model.name} has {len(named)} outputs; "
                "name one for each, in their order"
            )
        return tuple(given)
    if any(name != f"LABEL_{index}" for index, name in enumerate(named)):
        return named
    numbers = tuple(map(str, range(len(named))))
    if set(found) <= set(numbers):
        return numbers
    raise ModelError(
        f"{model.name} does not name its {len(named)} outputs, the data has {_listed(natural_order(found))}; "
        "say in a task file which output is which: labels: [first, second, ...]"
    )


def class_names(labels: Iterable[str], source: str, column: str) -> tuple[str, ...]:
    """Return the classes of training data in order; a single one is an error."""
    names = natural_order(labels)
    if len(names) < 2:
        raise DataError(
            f"{source}: column {column!r} holds one class only ({_listed(names)}); training needs two"
        )
    return names


def check_outputs(task: Task, model: Model, *, exactly: int = 0, at_least: int = 0) -> None:
    """Refuse a model with another number of outputs than a task's answers have."""
    count = getattr(model.config, "num_labels", None)
    if count is None or (exactly and count == exactly) or (at_least and count >= at_least):
        return
    needed = f"{exactly} output" if exactly else f"at least {at_least} outputs"
    other = "regression" if count == 1 else "classification"
    advice = f"; if its labels are {_ARE[other]}, say --task {other}" if 1 in (exactly, count) else ""
    raise ModelError(f"{task.title} needs a head with {needed}; {model.name} has {count}{advice}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
