from __future__ import annotations

import pytest

from octavo.experiments.paper import (
    FINETUNING,
    QAT_4_BITS,
    QAT_8_BITS,
    RANGES,
    finetuning_defaults,
    qat_defaults,
)
from octavo.experiments.ranges import Ranges
from octavo.experiments.settings import load_settings
from octavo.experiments.table import GLUE_TASKS, load_table
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.spec.presets import recipe
from octavo.tasks.glue import GLUE

# Tables 10 and 11: learning rates in units of 1e-5, batch sizes, epochs, and for 8 bits dropout of attention.
SPACE_8_BITS = {
    "cola": ([2, 3, 4], [16, 32], [3, 6], [0.0, 0.1]),
    "sst2": ([1, 2, 3], [16, 32], [3, 6], [0.0, 0.1]),
    "mrpc": ([1, 2, 3], [8], [3, 6], [0.0, 0.1]),
    "stsb": ([2, 4, 8], [16, 32], [3, 6], [0.0, 0.1]),
    "qqp": ([4, 5, 6], [32], [3], [0.0, 0.1]),
    "mnli": ([2, 3, 4], [16, 32], [3], [0.0, 0.1]),
    "qnli": ([2, 3, 4], [16, 32], [3], [0.0, 0.1]),
    "rte": ([1, 3, 5], [8], [3, 6], [0.0, 0.1]),
}
SPACE_4_BITS = {
    "cola": ([2, 3, 4], [16, 32], [3, 6]),
    "sst2": ([2, 3, 4], [16, 32], [3, 6]),
    "mrpc": ([2, 3, 4], [8], [3, 6]),
    "stsb": ([4, 6, 8], [16, 32], [3, 6]),
    "qqp": ([4, 5.5, 7], [32], [3, 6]),
    "mnli": ([3, 4, 5], [16, 32], [3, 6]),
    "qnli": ([2, 3, 4], [16, 32], [3, 6]),
    "rte": ([3, 4, 5], [8], [3, 6]),
}


def rates(hypers: list[Hyperparameters]) -> list[float]:
    return sorted({hyper.learning_rate for hyper in hypers})


def test_the_tables_of_the_appendix() -> None:
    assert FINETUNING["glue/mrpc"].learning_rate == 5e-5
    assert FINETUNING["glue/qqp"].batch_size == 64
    assert QAT_8_BITS["glue/stsb"].epochs == 6
    assert QAT_8_BITS["glue/cola"].attention_dropout == 0.0
    assert QAT_4_BITS["glue/qqp"].learning_rate == 5.5e-5
    assert all(entry.warmup == 0.1 and entry.range_learning_rate == 1e-2 for entry in QAT_4_BITS.values())
    assert all(entry.warmup == 0.0 for entry in FINETUNING.values())


def test_every_table_is_of_tasks_that_there_are() -> None:
    assert all(set(table) <= set(GLUE) for table in (FINETUNING, QAT_8_BITS, QAT_4_BITS))
    assert set(RANGES) == set(GLUE_TASKS)


def test_low_bit_recipes_have_the_low_bit_table() -> None:
    assert qat_defaults("glue/rte", recipe("w4a8-qat")) == QAT_4_BITS["glue/rte"]
    assert qat_defaults("glue/rte", recipe("w8a8-qat")) == QAT_8_BITS["glue/rte"]
    assert finetuning_defaults("mine").learning_rate == 2e-5


@pytest.mark.parametrize("task", GLUE_TASKS)
def test_fine_tuning_is_searched_where_appendix_b_1_searches(task: str) -> None:
    found = load_settings("paper-search").finetuning(task)
    batches = [32, 64] if task in ("qqp", "mnli", "qnli") else [8, 16, 32, 64]
    assert rates(found) == [2e-5, 3e-5, 4e-5, 5e-5]
    assert sorted({hyper.batch_size for hyper in found}) == batches
    assert len(found) == 4 * len(batches) == len(set(found)) and {hyper.epochs for hyper in found} == {3}
    # table 8 names batches of 16 for MNLI, which the text of the appendix does not search
    assert (FINETUNING[f"glue/{task}"] in found) is (task != "mnli")


@pytest.mark.parametrize("task", GLUE_TASKS)
def test_training_in_8_bits_is_searched_where_appendix_b_3_searches(task: str) -> None:
    found = load_settings("paper-search").training(task, recipe("w8a8-qat"))
    learning, batches, epochs, dropout = SPACE_8_BITS[task]
    assert rates(found) == pytest.approx([rate * 1e-5 for rate in learning])
    assert sorted({hyper.batch_size for hyper in found}) == batches
    assert sorted({hyper.epochs for hyper in found}) == epochs
    assert (
        sorted({hyper.attention_dropout for hyper in found if hyper.attention_dropout is not None}) == dropout
    )
    assert len(found) == len(learning) * len(batches) * len(epochs) * len(dropout) == len(set(found))
    assert QAT_8_BITS[f"glue/{task}"] in found


@pytest.mark.parametrize("task", GLUE_TASKS)
def test_training_with_4_bit_weights_is_searched_where_appendix_b_4_searches(task: str) -> None:
    found = load_settings("paper-search").training(task, recipe("w4a8-qat"))
    learning, batches, epochs = SPACE_4_BITS[task]
    assert rates(found) == pytest.approx([rate * 1e-5 for rate in learning])
    assert sorted({hyper.batch_size for hyper in found}) == batches
    assert sorted({hyper.epochs for hyper in found}) == epochs
    assert len(found) == len(learning) * len(batches) * len(epochs) == len(set(found))
    assert QAT_4_BITS[f"glue/{task}"] in found


def test_other_trained_rows_take_the_papers_choice_without_a_search() -> None:
    """The appendix searches for W8A8 and W4A8 only."""
    found = load_settings("paper-search").training("rte", recipe("w4a32-qat"))
    assert found == [QAT_4_BITS["glue/rte"]]


def test_searching_changes_no_calibration() -> None:
    assert load_settings("paper-search").calibration == load_settings("paper").calibration


def test_the_best_ranges_of_table_9() -> None:
    assert RANGES["rte"] == Ranges(weights="mse", activations="min-max", batch_size=1, batches=1)
    assert RANGES["sst2"] == Ranges(weights="mse", activations="running-min-max", batch_size=4, batches=16)
    found = {Ranges.of(row) for row in load_table("range-estimators").rows}
    assert set(RANGES.values()) <= found and len(found) == len(load_table("range-estimators").rows)
    calibration = load_settings("paper").calibration
    for task, ranges in RANGES.items():
        assert calibration.get(task, calibration["default"]) == (ranges.batch_size, ranges.batches)
