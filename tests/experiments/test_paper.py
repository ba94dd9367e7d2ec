from __future__ import annotations

from octavo.experiments.paper import (
    FINETUNING,
    QAT_4_BITS,
    QAT_8_BITS,
    finetuning_defaults,
    qat_defaults,
    search_space,
)
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.spec.presets import recipe
from octavo.tasks.glue import GLUE


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


def test_low_bit_recipes_have_the_low_bit_table() -> None:
    assert qat_defaults("glue/rte", recipe("w4a8-qat")) == QAT_4_BITS["glue/rte"]
    assert qat_defaults("glue/rte", recipe("w8a8-qat")) == QAT_8_BITS["glue/rte"]
    assert finetuning_defaults("mine").learning_rate == 2e-5


def test_the_search_space_is_every_combination() -> None:
    settings = list(search_space(Hyperparameters(learning_rate=1.0)))
    assert len(settings) == 16 and len(set(settings)) == 16
