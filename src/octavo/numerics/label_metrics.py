"""Metrics of labels by name, for any number of classes: 0 to 1, and -1 to 1 for Matthews' correlation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import DataError

Counts = NDArray[np.int64]


def confusion(predictions: Sequence[str], labels: Sequence[str]) -> Counts:
    """Return how often each class (row) was taken for which (column), for all classes that occur."""
    if len(predictions) != len(labels) or not labels:
        raise DataError(
            f"{len(predictions)} predictions and {len(labels)} labels cannot be compared; give one for each"
        )
    index = {name: number for number, name in enumerate(sorted({*predictions, *labels}))}
    table = np.zeros((len(index), len(index)), dtype=np.int64)
    np.add.at(table, ([index[name] for name in labels], [index[name] for name in predictions]), 1)
    return table


def label_accuracy(predictions: Sequence[str], labels: Sequence[str]) -> float:
    """Return the share of predictions that equal their label."""
    table = confusion(predictions, labels)
    return float(np.trace(table) / table.sum())


def macro_f1(predictions: Sequence[str], labels: Sequence[str]) -> float:
    """Return the mean over classes of 2 TP / (2 TP + FP + FN), over all that occur on either side."""
    table = confusion(predictions, labels)
    return float(np.mean(2 * np.diag(table) / (table.sum(axis=0) + table.sum(axis=1))))


def label_matthews(predictions: Sequence[str], labels: Sequence[str]) -> float:
    """Return Matthews' correlation of any number of classes (Gorodkin's R_K); 0.0 if a side is constant."""
    table = confusion(predictions, labels).astype(np.float64)
    true, said, total = table.sum(axis=1), table.sum(axis=0), table.sum()
    spread = (total**2 - (said**2).sum()) * (total**2 - (true**2).sum())
    return float((np.trace(table) * total - said @ true) / spread**0.5) if spread else 0.0


def set_f1(predictions: NDArray[Any], labels: NDArray[Any], average: str = "micro") -> float:
    """Return the F1 of label sets (n, labels) of booleans: over all entries, or the mean over labels.

    A label that occurs on neither side counts 0 in the mean over labels.
    """
    said, true = np.asarray(predictions, dtype=bool), np.asarray(labels, dtype=bool)
    axis = None if average == "micro" else 0
    hits = (said & true).sum(axis=axis)
    total = said.sum(axis=axis) + true.sum(axis=axis)
    return float(np.mean(np.where(total == 0, 0.0, 2 * hits / np.maximum(total, 1))))


def exact_sets(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the share of rows (n, labels) whose labels are all right."""
    return float((np.asarray(predictions, dtype=bool) == np.asarray(labels, dtype=bool)).all(axis=1).mean())
