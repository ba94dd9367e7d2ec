"""The metrics of GLUE in float64; every one takes predictions and labels of shape (n,)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from octavo.errors import DataError

Floats = NDArray[np.float64]
Metric = Callable[[ArrayLike, ArrayLike], float]


def accuracy(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return the share of predictions that equal their label, 0 to 1."""
    x, y = _pair(predictions, labels)
    return float(np.mean(x == y))


def f1(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return 2 TP / (2 TP + FP + FN) of class 1, 0 to 1; 0.0 when class 1 occurs nowhere."""
    hits, false_alarms, misses, _ = _confusion(predictions, labels)
    wrong = false_alarms + misses
    return 2 * hits / (2 * hits + wrong) if hits + wrong else 0.0


def matthews(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return Matthews' correlation of class 1 against the rest, -1 to 1; 0.0 when a side is constant."""
    tp, fp, fn, tn = _confusion(predictions, labels)
    margins = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)  # Python integers: no overflow
    return float((tp * tn - fp * fn) / margins**0.5) if margins else 0.0


def pearson(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return Pearson's correlation, -1 to 1; 0.0 when a side is constant, where it is undefined."""
    x, y = (_standardised(values) for values in _pair(predictions, labels))
    return float(np.clip(np.dot(x, y), -1.0, 1.0))


def spearman(predictions: ArrayLike, labels: ArrayLike) -> float:
    """Return Pearson's correlation of the ranks, ties share their mean rank; 0.0 if a side is constant."""
    x, y = _pair(predictions, labels)
    return pearson(_ranks(x), _ranks(y))


METRICS: Mapping[str, Metric] = MappingProxyType(
    {"accuracy": accuracy, "f1": f1, "matthews": matthews, "pearson": pearson, "spearman": spearman}
)


def _pair(predictions: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats]:
    x, y = np.asarray(predictions, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape or x.size == 0:
        raise DataError(
            f"predictions of shape {x.shape} and labels of shape {y.shape} cannot be compared; "
            "give two vectors of the same length, at least 1."
        )
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise DataError("predictions or labels hold NaN or infinity; a metric needs finite numbers.")
    return x, y


def _confusion(predictions: ArrayLike, labels: ArrayLike) -> tuple[int, int, int, int]:
    """Return true positives, false positives, false negatives and true negatives of class 1."""
    x, y = _pair(predictions, labels)
    said, true = x == 1, y == 1
    return _count(said & true), _count(said & ~true), _count(~said & true), _count(~said & ~true)


def _count(mask: NDArray[Any]) -> int:
    return int(np.count_nonzero(mask))


def _standardised(values: Floats) -> Floats:
    """Return the values with mean 0 and norm 1, or zeros when they are constant."""
    # Compared before centring: the mean of equal floats can differ from them by a rounding error.
    if values.max() == values.min():
        return np.zeros_like(values)
    # Scaled first, so that squares of very large or very small values neither overflow nor vanish.
    centred = values / np.abs(values).max()
    centred = centred - centred.mean()
    centred = centred / np.abs(centred).max()
    return np.asarray(centred / np.linalg.norm(centred), dtype=np.float64)


def _ranks(values: Floats) -> Floats:
    """Return ranks from 1; equal values share the mean of the ranks they cover."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], dtype=np.float64)
