from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import OctavoWarning
from octavo.experiments import runner as module
from octavo.experiments.cell import Cell
from octavo.experiments.engine import Workers
from octavo.experiments.grid import grid_cells
from octavo.experiments.runner import CellRunner, RunConfiguration
from octavo.experiments.table import parse_table
from octavo.methods.rounding import rounding
from octavo.methods.training.loop import TimeOverError
from octavo.progress import Progress
from tests.experiments.test_engine import SETTINGS
from tests.experiments.test_engine import configuration as configuration

TABLE = """octavo: 1
name: mine
title: Mine
source: here
tasks: [mrpc]
rows:
- name: adaround
  title: AdaRound
  method: quantize
  recipe: w4a32-adaround
  passes: [{adaround: {iterations: 50}}]
- {name: distilled, title: Distilled, method: distill, recipe: w8a8-qat, batch_size: 16, batches: 2}
"""


@pytest.fixture
def start(configuration: RunConfiguration) -> Cell:
    """The fine-tuned cell that the others start from."""
    cell = cells()["fp32"]
    CellRunner(configuration).run(cell, None)
    return cell


def cells() -> dict[str, Cell]:
    found = grid_cells([parse_table(TABLE, "mine.yaml")], ["mrpc"], SETTINGS, layers=2)
    return {cell.row: cell for cell in found if cell.seed == 0}


def half(stop_at: float) -> Progress:
    """A time that is over when half of the work is done."""

    def check(done: int, total: int) -> None:
        if 2 * done >= total:
            raise TimeOverError("the time was over")

    return check


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the weights that were rounded, and not taken from an earlier run."""
    names: list[str] = []
    solve = rounding._solve

    def spy(model: Any, site: Any, *rest: Any) -> Any:
        names.append(site.name)
        return solve(model, site, *rest)

    monkeypatch.setattr(rounding, "_solve", spy)
    return names


def elsewhere(configuration: RunConfiguration, tmp_path: Path) -> RunConfiguration:
    """The same fine-tuned model with a results folder of its own."""
    return replace(configuration, output=str(tmp_path / "whole"), starts=str(configuration.work / "starts"))


def work(configuration: RunConfiguration) -> list[Path]:
    return sorted((configuration.work / "running").iterdir())


def test_rounding_that_was_cut_goes_on_from_the_weights_it_finished(
    configuration: RunConfiguration,
    start: Cell,
    solved: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell = cells()["adaround"]
    whole = CellRunner(elsewhere(configuration, tmp_path)).run(cell, start)
    every = list(solved)
    solved.clear()
    with monkeypatch.context() as patched, pytest.raises(TimeOverError):
        patched.setattr(module, "_stop_at", half)
        CellRunner(configuration).run(cell, start)
    assert [folder.name for folder in work(configuration)] == ["mrpc-adaround-seed-0.json"]
    finished = {file.stem for file in work(configuration)[0].glob("*.safetensors")} & set(every)
    assert finished
    solved.clear()
    assert CellRunner(configuration).run(cell, start) == whole
    assert sorted(solved) == sorted(set(every) - finished)
    assert work(configuration) == []


def test_what_an_attempt_left_with_other_numbers_is_not_used(
    configuration: RunConfiguration, start: Cell, solved: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that passes computed before rounding may differ by the count of threads."""
    cell = cells()["adaround"]
    with monkeypatch.context() as patched, pytest.raises(TimeOverError):
        patched.setattr(module, "_stop_at", half)
        CellRunner(configuration).run(cell, start)
    about = work(configuration)[0] / "about.json"
    about.write_text(about.read_text(encoding="utf-8").replace('"weights": "', '"weights": "0'))
    solved.clear()
    CellRunner(configuration).run(cell, start)
    assert len(solved) > 1 and "layers.0.query.weight" in solved
    assert work(configuration) == []


def test_a_distillation_that_was_cut_goes_on_from_its_last_step(
    configuration: RunConfiguration, start: Cell, tmp_path: Path
) -> None:
    cell = cells()["distilled"]
    with pytest.warns(OctavoWarning, match="different texts may be learned by heart"):
        whole = CellRunner(elsewhere(configuration, tmp_path)).run(cell, start)
        with pytest.raises(TimeOverError, match="after 1 of"):
            CellRunner(configuration).run(cell, start, stop_at=time.monotonic())
        assert CellRunner(configuration).run(cell, start) == whole
    result = configuration.results().get(cell)
    assert result is not None and result["training"]["trainings"][0]["resumed_at"] == 1
    assert work(configuration) == []


@pytest.mark.slow
def test_rounding_in_a_process_that_was_stopped_goes_on(
    configuration: RunConfiguration, start: Cell, solved: list[str]
) -> None:
    """Where the time is over, the processes are killed."""
    cell = cells()["adaround"]
    engine = Workers(configuration, 1)
    engine.submit(cell, start)
    folder, ends = configuration.work / "running" / "mrpc-adaround-seed-0.json", time.monotonic() + 60
    while not list(folder.glob("layers.*.safetensors")) and time.monotonic() < ends:
        time.sleep(0.001)
    engine.close()
    finished = {file.stem for file in folder.glob("layers.*.safetensors")}
    assert finished
    CellRunner(configuration).run(cell, start)
    assert solved and not finished & set(solved)
    assert work(configuration) == []
