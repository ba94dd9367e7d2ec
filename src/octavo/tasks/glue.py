"""Tasks with labels as data: where their columns are, what their labels mean, how they are scored.

A further task to train and score on is one entry in the table below; it needs a `reader` of its own only if
its files are not laid out as GLUE's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from octavo.errors import DataError, did_you_mean
from octavo.numerics.metrics import METRICS

if TYPE_CHECKING:
    from octavo.tasks.examples import Examples

NUMBERED = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")


@dataclass(frozen=True, kw_only=True)
class Split:
    """A split by the name of its file (without .tsv) and its published number of examples."""

    name: str
    examples: int

    @property
    def hub_name(self) -> str:
        """The hub's name: dev_matched is called validation_matched there."""
        return self.name.replace("dev", "validation")


@dataclass(frozen=True, kw_only=True)
class GlueTask:
    """One task, of GLUE or laid out like one.

    folder holds its files and is its title in tables. columns and label name columns of the header, or
    count fields from 0 where the file has none (fields then says how many there are). labels are the classes
    in GLUE's order, None for regression; spellings is how the files write them. tolerated is how many broken
    lines the published files are known to have at most. The first split that is not train is the default.
    reader returns a split given the task, the data folder and the split's name; None reads GLUE's files.
    """

    name: str
    folder: str
    columns: tuple[str | int, ...]
    label: str | int
    labels: tuple[str, ...] | None
    spellings: tuple[str, ...] = NUMBERED
    hub_columns: tuple[str, ...]
    metrics: tuple[str, ...]
    splits: tuple[Split, ...]
    fields: int | None = None
    tolerated: int = 0
    reader: Callable[[GlueTask, str | Path | None, str | None], Examples] | None = None

    @property
    def regression(self) -> bool:
        """Whether the labels are scores instead of classes."""
        return self.labels is None

    @property
    def outputs(self) -> int:
        """How many logits a head for this task has."""
        return 1 if self.labels is None else len(self.labels)

    @property
    def config(self) -> str:
        """The task's name without its family: rte for glue/rte."""
        return self.name.split("/")[1]

    @property
    def default_split(self) -> str:
        """The split that scores are given for: dev, and dev_matched for MNLI."""
        return self.splits[1].name

    def split(self, name: str | None = None) -> Split:
        """Return the split of this name, or the default one."""
        name = self.default_split if name is None else name
        for split in self.splits:
            if split.name == name:
                return split
        known = ", ".join(split.name for split in self.splits)
        reason = " (GLUE keeps the labels of its test sets to itself)" if name.startswith("test") else ""
        raise DataError(f"{self.name} has no labelled split {name!r}{reason}; choose one of {known}.")


def _splits(train: int, **others: int) -> tuple[Split, ...]:
    return tuple(Split(name=name, examples=size) for name, size in {"train": train, **others}.items())


_SENTENCES = ("sentence1", "sentence2")

_TASKS = (
    GlueTask(
        name="glue/cola",
        folder="CoLA",
        columns=(3,),
        label=1,
        fields=4,
        labels=("unacceptable", "acceptable"),
        hub_columns=("sentence",),
        metrics=("matthews",),
        splits=_splits(8551, dev=1043),
    ),
    GlueTask(
        name="glue/sst2",
        folder="SST-2",
        columns=("sentence",),
        label="label",
        labels=("negative", "positive"),
        hub_columns=("sentence",),
        metrics=("accuracy",),
        splits=_splits(67349, dev=872),
    ),
    GlueTask(
        name="glue/mrpc",
        folder="MRPC",
        columns=("#1 String", "#2 String"),
        label="Quality",
        labels=("not_equivalent", "equivalent"),
        hub_columns=_SENTENCES,
        metrics=("accuracy", "f1"),
        splits=_splits(3668, dev=408),
    ),
    GlueTask(
        name="glue/stsb",
        folder="STS-B",
        columns=_SENTENCES,
        label="score",
        labels=None,
        spellings=(),
        hub_columns=_SENTENCES,
        metrics=("pearson", "spearman"),
        splits=_splits(5749, dev=1500),
    ),
    GlueTask(
        name="glue/qqp",
        folder="QQP",
        columns=("question1", "question2"),
        label="is_duplicate",
        labels=("not_duplicate", "duplicate"),
        hub_columns=("question1", "question2"),
        metrics=("accuracy", "f1"),
        splits=_splits(363846, dev=40430),
        # One published edition has a few questions cut in two by a line break inside the text.
        tolerated=64,
    ),
    GlueTask(
        name="glue/mnli",
        folder="MNLI",
        columns=_SENTENCES,
        label="gold_label",
        labels=("entailment", "neutral", "contradiction"),
        spellings=("entailment", "neutral", "contradiction"),
        hub_columns=("premise", "hypothesis"),
        metrics=("accuracy",),
        splits=_splits(392702, dev_matched=9815, dev_mismatched=9832),
    ),
    GlueTask(
        name="glue/qnli",
        folder="QNLI",
        columns=("question", "sentence"),
        label="label",
        labels=ENTAILMENT,
        spellings=ENTAILMENT,
        hub_columns=("question", "sentence"),
        metrics=("accuracy",),
        splits=_splits(104743, dev=5463),
    ),
    GlueTask(
        name="glue/rte",
        folder="RTE",
        columns=_SENTENCES,
        label="label",
        labels=ENTAILMENT,
        spellings=ENTAILMENT,
        hub_columns=_SENTENCES,
        metrics=("accuracy",),
        splits=_splits(2490, dev=277),
    ),
    GlueTask(
        name="glue/wnli",
        folder="WNLI",
        columns=_SENTENCES,
        label="label",
        labels=("not_entailment", "entailment"),
        hub_columns=_SENTENCES,
        metrics=("accuracy",),
        splits=_splits(635, dev=71),
    ),
)

_TABLE = {task.name: task for task in _TASKS}
GLUE: Mapping[str, GlueTask] = MappingProxyType(_TABLE)


def glue_task(name: str) -> GlueTask:
    """Return the task of this name, such as glue/rte."""
    if name in GLUE:
        return GLUE[name]
    raise unknown_task(name, GLUE)


def task_by_short_name(name: str) -> GlueTask:
    """Return the task of a name without its family, such as rte."""
    for task in GLUE.values():
        if task.config == name:
            return task
    raise unknown_task(name, [task.config for task in GLUE.values()])


def unknown_task(name: str, known: Iterable[str], more: str = "") -> DataError:
    """Return the error for a task name that is not among the known ones."""
    names = tuple(known)
    hint = did_you_mean(name.lower(), names) or "."
    return DataError(f"Unknown task {name!r}: there are {', '.join(names)}{hint}{more}")


def predictions(task: GlueTask, logits: NDArray[Any], order: tuple[int, ...] | None = None) -> NDArray[Any]:
    """Return predictions (n,) for logits (n, outputs): classes in GLUE's order, or scores clamped to [0, 5].

    order[i] is the class that the model's output i stands for; None means GLUE's order.
    """
    if task.regression:
        return np.asarray(np.clip(logits[:, 0], 0.0, 5.0))
    winners = np.asarray(logits.argmax(axis=1))
    return winners if order is None else np.asarray(np.take(order, winners))


def measure(task: GlueTask, predicted: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """Return the task's metrics times 100; its score is their mean, as in the paper's tables."""
    return {name: 100 * METRICS[name](predicted, labels) for name in task.metrics}
