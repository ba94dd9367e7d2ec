"""A task's data as training uses it: texts and tokens of both splits, and where they came from."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from octavo.graph import Encoder, QuantizedEncoder, Text
from octavo.methods.training.examples import Examples as TrainingExamples
from octavo.methods.training.labelled import Labelled, tokenize_labelled
from octavo.progress import Progress, silent
from octavo.tasks.evaluation import read_examples
from octavo.tasks.examples import Examples
from octavo.tasks.glue import GlueTask, glue_task, measure, predictions
from octavo.tasks.kinds import Running, Task
from octavo.tasks.kinds.task import DEV, TRAIN
from octavo.tasks.labels import label_mapping

_SCORED = 32
"""Texts that are scored at once after every epoch."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingData:
    """What training asks of any task.

    Arguments:
        texts: of the training set, to calibrate with.
        train: tokens and labels, on the model's device.
        about: which files they are, how many examples they hold and whether they are partial.
    """

    texts: tuple[Text, ...]
    train: TrainingExamples
    about: dict[str, Any]

    def sample(self, count: int, seed: int) -> list[Text]:
        """Return some of the training texts, others for every seed."""
        return random.Random(seed).sample(self.texts, min(count, len(self.texts)))

    def metrics(self, model: Encoder, progress: Progress = silent) -> dict[str, float]:
        """Return the task's metrics times 100 on the development set."""
        raise NotImplementedError

    def score_of(self, metrics: Mapping[str, float]) -> float:
        """Return what the best epoch is chosen by: the first of the metrics."""
        return next(iter(metrics.values()))

    def score(self, model: Encoder, progress: Progress = silent) -> float:
        """Return the score of a model on the development set, times 100."""
        return self.score_of(self.metrics(model, progress))


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskData(TrainingData):
    """Both splits of a task of GLUE, tokenized for a model and on its device.

    order is the class of GLUE that each output of the model stands for, None if they are the same.
    """

    task: GlueTask
    dev: Labelled
    truth: NDArray[Any]
    order: tuple[int, ...] | None

    def metrics(self, model: Encoder, progress: Progress = silent) -> dict[str, float]:
        """Return the task's metrics times 100 on the development set."""
        logits = predict(model, self.dev, progress=progress)
        return measure(self.task, predictions(self.task, logits, self.order), self.truth)

    def score_of(self, metrics: Mapping[str, float]) -> float:
        """Return the mean of the task's metrics, the score of the paper's tables."""
        return sum(metrics.values()) / len(metrics)


@dataclass(frozen=True, kw_only=True, eq=False)
class KindData(TrainingData):
    """Both splits of a user's own task; those of training are tokenized, `train.loss` is theirs."""

    task: Task
    dev: Examples
    max_length: int

    def metrics(self, model: Encoder, progress: Progress = silent) -> dict[str, float]:
        """Return the task's metrics times 100 on the development set."""
        running = Running(batch_size=_SCORED, max_length=self.max_length, progress=progress)
        return self.task.measure(self.task.predict(model, self.dev, running), self.dev)


def read_kind(encoder: Encoder, task: Task, max_length: int = 128) -> KindData:
    """Read and tokenize a user's own task for an encoder whose head fits it."""
    task.check_model(encoder)
    train, dev = task.read(TRAIN), task.read(DEV)
    task.output_labels(train)  # one class alone is an error
    task.check_labels(encoder, dev)  # now, and not when the first epoch is over
    return KindData(
        task=task,
        texts=_as_read(encoder, train.read_texts),
        train=task.labelled(encoder, train, max_length).to(encoder.device),
        dev=dev,
        about={TRAIN: describe(train), DEV: describe(dev)},
        max_length=max_length,
    )


def _as_read(encoder: Encoder, texts: Sequence[Text]) -> tuple[Text, ...]:
    """Return texts as the model reads them: an embedding model reads the two of a pair one by one."""
    if encoder.head != "encoder":
        return tuple(texts)
    return tuple(single for text in texts for single in ((text,) if isinstance(text, str) else text))


def read_task(encoder: Encoder, name: str, data: str | Path | None, max_length: int = 128) -> TaskData:
    """Read and tokenize a task such as glue/rte for an encoder whose head fits it."""
    task = glue_task(name)
    train, dev = read_examples(task, data, "train"), read_examples(task, data)
    order = label_mapping(encoder, task)
    tokens = [
        tokenize_labelled(encoder, part.texts, _outputs(part.labels, order), max_length).to(encoder.device)
        for part in (train, dev)
    ]
    return TaskData(
        task=task,
        texts=train.texts,
        train=tokens[0],
        dev=tokens[1],
        truth=dev.labels,
        order=order,
        about={TRAIN: describe(train), DEV: describe(dev)},
    )


def describe(examples: Examples) -> dict[str, Any]:
    """Return what identifies a split: size, whether it is partial, a fingerprint of texts and labels."""
    digest = hashlib.sha256()
    labels = examples.labels.tolist() if isinstance(examples.labels, np.ndarray) else examples.labels
    for text, label in zip(examples.texts, labels, strict=True):
        digest.update(repr((text, label)).encode())
    return {
        "examples": len(examples),
        "full": examples.full,
        "partial": examples.partial,
        "skipped": examples.skipped,
        "sha256": digest.hexdigest(),
    }


def predict(
    model: Encoder, data: Labelled, batch_size: int = 128, progress: Progress = silent
) -> NDArray[np.float64]:
    """Return the logits (n, outputs) of all examples in their order."""
    if isinstance(model, QuantizedEncoder) and model.depends_on_batch:
        batch_size = 1
    order = torch.argsort(data.lengths, stable=True)
    moved = order.to(data.labels.device)
    parts = []
    with torch.no_grad():
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            width = data.width(rows) if batch_size > 1 else int(data.lengths[rows])
            inputs, _ = data.batch(moved[start : start + batch_size], width)
            parts.append(model.graph(*inputs)[0])
            progress(min(start + batch_size, len(order)), len(order))
    logits = torch.cat(parts).double().cpu().numpy()
    restored = np.empty_like(logits)
    restored[order.numpy()] = logits
    return restored


def _outputs(labels: NDArray[Any], order: tuple[int, ...] | None) -> NDArray[Any]:
    """Return the model's output that stands for every label."""
    if order is None:
        return labels
    inverse = np.empty(len(order), dtype=np.int64)
    inverse[list(order)] = np.arange(len(order))
    return np.asarray(inverse[labels])
