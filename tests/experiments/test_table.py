from __future__ import annotations

import pytest

from octavo.errors import SpecError
from octavo.experiments.paper import FINETUNING, QAT_4_BITS
from octavo.experiments.settings import load_settings, settings_for
from octavo.experiments.table import TableRow, load_table, parse_table, table_names
from octavo.spec import Mse
from octavo.spec.presets import recipe

HEAD = "octavo: 1\nname: t\ntitle: T\nsource: nowhere\n"


@pytest.mark.parametrize("name", table_names())
def test_every_row_of_every_table_has_a_recipe(name: str) -> None:
    table = load_table(name)
    assert len({row.name for row in table.rows}) == len(table.rows)
    for row in table.rows:
        for task in table.tasks:
            built = row.on(task).build_recipe(layers=12)
            assert (built is None) is (row.method == "finetune")


def test_the_papers_numbers_are_consistent() -> None:
    for name in ("initial", "main", "low-bit-full"):
        for row in load_table(name).rows:
            scores = [value for task, value in row.paper.items() if task != "mean"]
            if len(scores) == 8:
                # medians of means are not means of medians
                assert sum(scores) / 8 == pytest.approx(row.paper["mean"], abs=0.1), row.name


def test_rows_shared_by_tables_are_the_same_experiment() -> None:
    seen: dict[str, tuple[object, ...]] = {}
    for name in table_names():
        for row in load_table(name).rows:
            for task in load_table(name).tasks:
                here = row.on(task)
                what = (
                    here.recipe,
                    repr(here.estimators),
                    here.overrides,
                    here.batch_size,
                    here.batches,
                    here.method,
                )
                assert seen.setdefault(f"{row.name}/{task}", what) == what, row.name


def test_a_row_changes_its_recipe() -> None:
    row = TableRow(
        name="r",
        title="R",
        method="quantize",
        recipe="w8a8",
        estimators={"weights": "mse"},
        overrides=({"sites": ["layers.-1.ffn_residual"], "bits": 16},),
    )
    built = row.build_recipe(layers=6)
    assert built is not None and built.weights is not None
    assert built.weights.estimator == Mse()
    found = built.spec("layers.5.ffn_residual", "activation")
    assert found is not None and found.bits == 16


def test_one_task_may_differ() -> None:
    row = next(row for row in load_table("main").rows if row.name == "w8a8-mp")
    assert row.on("stsb").recipe == "w8a8-mp-output" and row.on("rte").recipe == "w8a8-mp"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: t", "a table starts with octavo: 1"),
        (HEAD, "a table needs rows"),
        (
            HEAD + "rows: [{name: a, title: A, method: finetun}]",
            "unknown method 'finetun'; did you mean 'finetune'",
        ),
        (HEAD + "rows: [{name: a, title: A, method: quantize}]", "quantize and train need one"),
        (
            HEAD + "row: []\nrows: [{name: a, title: A, method: finetune}]",
            "unknown key 'row'; did you mean 'rows'",
        ),
        (HEAD + "rows: [", "expected the node content"),
    ],
)
def test_bad_tables_are_explained(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_table(text, "mine.yaml")


def test_an_unknown_table_names_the_nearest() -> None:
    with pytest.raises(SpecError, match="no table 'mian' and no such file; did you mean 'main'"):
        load_table("mian")


def test_settings_change_the_papers_and_search_lists() -> None:
    settings = load_settings("minilm")
    assert [(each.learning_rate, each.epochs) for each in settings.finetuning("cola")] == [(5e-5, 20)]
    found = settings.training("sst2", recipe("w8a8-qat"))
    assert [each.learning_rate for each in found] == [1e-4, 5e-5] and {each.epochs for each in found} == {3}
    assert settings.finetuning("rte") == [FINETUNING["glue/rte"]]
    assert load_settings("paper").training("qqp", recipe("w4a8-qat")) == [QAT_4_BITS["glue/qqp"]]
    assert settings_for("demo:minilm").name == "minilm" and settings_for("bert-base-uncased").name == "paper"


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(SpecError, match="no settings 'papr' and no such file; did you mean 'paper'"):
        load_settings("papr")
