from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from octavo.errors import DataError
from octavo.numerics.label_metrics import (
    confusion,
    exact_sets,
    label_accuracy,
    label_matthews,
    macro_f1,
    set_f1,
)


def draw(classes: int, seed: int) -> tuple[list[str], list[str]]:
    generator = np.random.default_rng(seed)
    names = [f"class {number}" for number in range(classes)]
    said, true = (generator.choice(names, 60).tolist() for _ in range(2))
    return said, true


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("seed", range(3))
def test_metrics_of_classes_are_those_of_scikit_learn(classes: int, seed: int) -> None:
    said, true = draw(classes, seed)
    assert label_accuracy(said, true) == pytest.approx(metrics.accuracy_score(true, said))
    assert macro_f1(said, true) == pytest.approx(metrics.f1_score(true, said, average="macro"))
    assert label_matthews(said, true) == pytest.approx(metrics.matthews_corrcoef(true, said))


def test_a_class_that_is_only_predicted_counts_in_the_mean() -> None:
    said, true = ["a", "b", "c"], ["a", "b", "b"]
    assert macro_f1(said, true) == pytest.approx(metrics.f1_score(true, said, average="macro"))
    assert confusion(said, true).tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]


def test_a_constant_side_has_no_correlation() -> None:
    assert label_matthews(["a", "a"], ["a", "b"]) == 0.0


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_f1_of_label_sets_is_that_of_scikit_learn(average: str) -> None:
    generator = np.random.default_rng(0)
    said, true = generator.random((40, 6)) > 0.6, generator.random((40, 6)) > 0.6
    said[:, 5] = true[:, 5] = False  # a label that nobody has
    expected = metrics.f1_score(true, said, average=average, zero_division=0)
    assert set_f1(said, true, average) == pytest.approx(expected)
    assert exact_sets(said, true) == pytest.approx(metrics.accuracy_score(true, said))


def test_as_many_of_both_are_needed() -> None:
    with pytest.raises(DataError, match="1 predictions and 2 labels cannot be compared"):
        label_accuracy(["a"], ["a", "b"])
