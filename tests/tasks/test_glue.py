from __future__ import annotations

import numpy as np
import pytest

from octavo.errors import DataError
from octavo.numerics.metrics import METRICS
from octavo.tasks.glue import GLUE, glue_task, measure, predictions


def test_the_nine_tasks_have_the_names_users_type() -> None:
    names = "cola sst2 mrpc stsb qqp mnli qnli rte wnli"
    assert list(GLUE) == [f"glue/{name}" for name in names.split()]


@pytest.mark.parametrize("task", GLUE.values(), ids=GLUE)
def test_every_entry_is_consistent(task) -> None:
    assert len(task.columns) == len(task.hub_columns) in (1, 2)
    assert set(task.metrics) <= set(METRICS)
    assert len(task.spellings) == (0 if task.regression else task.outputs)
    assert (task.fields is not None) == all(isinstance(column, int) for column in (*task.columns, task.label))
    assert task.splits[0].name == "train"


def test_mnli_is_scored_on_the_matched_split() -> None:
    task = glue_task("glue/mnli")
    assert task.default_split == "dev_matched"
    assert task.split("dev_mismatched").examples == 9832
    assert task.split().hub_name == "validation_matched"


def test_the_test_split_has_no_labels() -> None:
    with pytest.raises(
        DataError, match=r"no labelled split 'test' \(GLUE keeps .*\); choose one of train, dev\."
    ):
        glue_task("glue/rte").split("test")


@pytest.mark.parametrize("name", ["glue/rtee", "rte", "GLUE/RTE"])
def test_an_unknown_task_lists_the_nearest_names(name: str) -> None:
    with pytest.raises(DataError, match=r"Unknown task .*did you mean .*'glue/rte'"):
        glue_task(name)


def test_a_name_like_no_other_lists_all() -> None:
    with pytest.raises(DataError, match=r"there are glue/cola, .*, glue/wnli\."):
        glue_task("zzzz")


def test_scores_are_clamped_to_the_range_of_stsb() -> None:
    logits = np.array([[-1.0], [2.5], [9.0]])
    assert predictions(glue_task("glue/stsb"), logits).tolist() == [0.0, 2.5, 5.0]


def test_classes_follow_the_order_of_the_model() -> None:
    logits = np.array([[3.0, 1.0, 0.0], [0.0, 1.0, 5.0]])
    task = glue_task("glue/mnli")
    assert predictions(task, logits).tolist() == [0, 2]
    assert predictions(task, logits, (2, 0, 1)).tolist() == [2, 1]


def test_mrpc_has_accuracy_and_f1_times_100() -> None:
    assert measure(glue_task("glue/mrpc"), [1, 1, 0, 0], [1, 0, 0, 0]) == {
        "accuracy": pytest.approx(75.0),
        "f1": pytest.approx(100 * 2 / 3),
    }


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("cola", ["matthews"]),
        ("sst2", ["accuracy"]),
        ("mrpc", ["accuracy", "f1"]),
        ("stsb", ["pearson", "spearman"]),
        ("qqp", ["accuracy", "f1"]),
        ("mnli", ["accuracy"]),
        ("qnli", ["accuracy"]),
        ("rte", ["accuracy"]),
        ("wnli", ["accuracy"]),
    ],
)
def test_metrics_are_those_of_the_paper(name: str, metrics: list[str]) -> None:
    assert list(measure(glue_task(f"glue/{name}"), [0, 1], [0, 1])) == metrics
