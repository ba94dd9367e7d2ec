from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.experiments.engine import InProcess
from octavo.experiments.planning import Selection, missing_tasks, needed_cells, plan, reproduce
from octavo.experiments.render import render_table
from octavo.experiments.runner import RunConfiguration
from octavo.experiments.settings import Settings
from octavo.experiments.summary import summarize
from octavo.experiments.table import Table, parse_table
from octavo.tasks import glue
from octavo.tasks.examples import Examples
from octavo.tasks.glue import GlueTask, Split
from tests.methods import tiny

TABLE = """octavo: 1
name: mine
title: Mine
source: here
tasks: [letters]
rows:
- {name: fp32, title: FP32, method: finetune, seeds: 1}
- {name: w8a8, title: W8A8, method: quantize, recipe: w8a8, seeds: 1}
"""
SETTINGS = Settings(name="test", finetune={"letters": {"learning_rate": 1e-3, "epochs": 1}})


def read_letters(task: GlueTask, data: str | Path | None, split: str | None = None) -> Examples:
    chosen = task.split(split)
    texts, labels = tiny.texts(chosen.examples, seed=len(chosen.name))
    return Examples(
        task=task.name,
        split=chosen.name,
        texts=tuple(texts),
        labels=np.asarray(labels),
        full=chosen.examples,
        source="generated",
    )


LETTERS = GlueTask(
    name="mine/letters",
    folder="Letters",
    columns=("text",),
    label="label",
    labels=("without", "with"),
    hub_columns=("text",),
    metrics=("accuracy",),
    splits=(Split(name="train", examples=40), Split(name="dev", examples=12)),
    reader=read_letters,
)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setitem(glue._TABLE, LETTERS.name, LETTERS)
    return parse_table(TABLE, "mine.yaml")


def test_a_task_to_train_on_is_one_entry(table: Table, tiny_model: str, tmp_path: Path) -> None:
    configuration = RunConfiguration(
        model=tiny_model, data=str(tmp_path), output=str(tmp_path / "results"), device="cpu", settings="test"
    )
    assert missing_tasks([table], tmp_path) == []
    cells = needed_cells([table], Selection(seeds=(0,)), SETTINGS, configuration)
    assert [cell.path for cell in cells] == [
        "letters/fp32/lr0.001-bs32-e1-seed-0.json",
        "letters/w8a8/seed-0.json",
    ]
    assert reproduce(cells, configuration, InProcess(configuration)) == {}
    results = configuration.results()
    assert results.missing(cells) == []
    assert results.start("letters") is None  # one seed is no median of five
    quantized = results.get(cells[1])
    started = results.get(cells[0])
    assert quantized is not None and quantized["start"] == cells[0].path
    assert started is not None and quantized["start_score"] == started["score"]
    assert "--only-seed 0 --start-seed 0" in quantized["command"]
    assert "| W8A8 |" in render_table(table, summarize(results.all()))
    assert "| Letters |" in render_table(table, summarize(results.all()))


def test_a_plan_says_what_is_missing_known_and_impossible(
    table: Table, tiny_model: str, tmp_path: Path
) -> None:
    more = """
- {name: same, title: As W8A8, method: quantize, recipe: w8a8, seeds: 2}
- {name: other, title: Other, method: quantize, recipe: w8a8, overrides: [{sites: [segment], "off": true}]}
"""
    configuration = RunConfiguration(
        model=tiny_model, data=str(tmp_path), output=str(tmp_path / "results"), device="cpu", settings="test"
    )
    tables = [parse_table(TABLE + more.lstrip(), "mine.yaml")]
    found = plan(tables, Selection(seeds=(0, 1)), SETTINGS, configuration)
    assert [(cell.row, cell.seed) for cell in found.missing] == [
        *[("fp32", 0), ("fp32", 1), ("w8a8", 0), ("same", 1)]
    ]
    assert {cell.path: key for cell, key in found.known.items()} == {
        "letters/same/seed-0.json": "letters/w8a8/seed-0"
    }
    assert set(found.cells) == {*found.missing, *found.known}
    assert list(found.impossible) == ["other"] and "matches no site" in found.impossible["other"]
    assert not (tmp_path / "results").exists()
    configuration.results().put(found.missing[2], {"score": 1.0})
    later = plan(tables, Selection(seeds=(0, 1)), SETTINGS, configuration)
    assert later.cells == found.cells and later.known == found.known
    assert later.missing == tuple(cell for cell in found.missing if cell.row != "w8a8")
