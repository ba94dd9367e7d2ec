from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator

from octavo.errors import OctavoWarning
from octavo.experiments.engine import InProcess, Workers
from octavo.experiments.grid import GridRun, grid_cells
from octavo.experiments.planning import Selection, needed_cells
from octavo.experiments.runner import RunConfiguration
from octavo.experiments.settings import Settings
from octavo.experiments.table import load_table

SETTINGS = Settings(
    name="test",
    finetune={"mrpc": {"learning_rate": 3e-3, "batch_size": 16, "epochs": 2}},
    train={"default": {"mrpc": {"learning_rate": 1e-3, "batch_size": 16, "epochs": 1}}},
    calibration={"default": (1, 2)},
)
ROWS = ("fp32", "w8a8", "w8a8-qat")


@pytest.fixture
def configuration(tiny_glue: Path, tiny_model: str, tmp_path: Path) -> RunConfiguration:
    return RunConfiguration(
        model=tiny_model, data=str(tiny_glue), output=str(tmp_path / "results"), device="cpu"
    )


def small(configuration: RunConfiguration):  # type: ignore[no-untyped-def]
    found = needed_cells([load_table("main")], Selection(rows=ROWS, seeds=(0,)), SETTINGS, configuration)
    return [cell for cell in found if cell.seed == 0]


def test_a_grid_in_this_process(configuration: RunConfiguration) -> None:
    cells = small(configuration)
    assert [cell.row for cell in cells] == ["fp32", "w8a8", "w8a8-qat"]
    assert GridRun(configuration, cells, InProcess(configuration)).run() == {}
    store = configuration.results()
    for cell in cells:
        result = store.get(cell)
        assert result is not None
        assert result["data"]["train"] | {"sha256": ""} == {
            "examples": 48, "full": 3668, "partial": True, "skipped": 0, "sha256": "",
        }  # fmt: skip
        assert "--row" in result["command"] and result["versions"]["torch"] and result["hardware"]["cores"]
        assert 0 <= result["score"] <= 100


def test_cells_that_share_a_start_leave_it_as_it_was(configuration: RunConfiguration) -> None:
    rows = ("w4a8", "int8", "w8a8-distilled")
    cells = needed_cells([load_table("ours")], Selection(rows=rows, seeds=(0,)), SETTINGS, configuration)
    engine = InProcess(configuration)
    with pytest.warns(OctavoWarning):
        assert GridRun(configuration, cells, engine).run() == {}
    trained = configuration.fine_tuned().read(cells[0], engine.runner.task("mrpc", 128).about)
    assert trained is not None
    kept = engine.runner._started["mrpc"][1]
    for name, parameter in kept.graph.named_parameters():
        assert torch.equal(parameter.cpu(), trained[0][name]), name
    assert not kept.graph.training


def test_a_cell_is_distilled_without_labels(configuration: RunConfiguration) -> None:
    rows = ("w8a8-distilled",)
    cells = needed_cells([load_table("ours")], Selection(rows=rows, seeds=(0,)), SETTINGS, configuration)
    assert [cell.method for cell in cells] == ["finetune", "distill"]
    with pytest.warns(OctavoWarning, match="different texts may be learned by heart"):
        assert GridRun(configuration, cells, InProcess(configuration)).run() == {}
    result = configuration.results().get(cells[1])
    assert result is not None and result["training"]["error_after"] <= result["training"]["error_before"]
    assert not any((configuration.work / "running").iterdir())


def test_mixed_precision_trains_and_scores_in_full_precision(
    configuration: RunConfiguration, tmp_path: Path
) -> None:
    fast = replace(
        configuration, precision="bf16", output=str(tmp_path / "fast"), starts=str(tmp_path / "starts")
    )
    cells = [cell for cell in small(fast) if cell.row == "fp32"]
    Accelerator(cpu=True)  # a training before this one, with other settings
    assert GridRun(fast, cells, InProcess(fast)).run() == {}
    result = fast.results().get(cells[0])
    assert result is not None and result["training"]["precision"] == "bf16"
    assert result["command"].endswith("--mixed-precision bf16")
    # the same parameters, scored by a run that knows nothing of bf16
    again = replace(fast, precision="no", output=str(tmp_path / "again"))
    assert GridRun(again, cells, InProcess(again)).run() == {}
    scored = again.results().get(cells[0])
    assert scored is not None and scored["score"] == result["score"]
    assert scored["training"] == result["training"]


def test_a_cell_that_fails_is_reported(configuration: RunConfiguration) -> None:
    cells = small(configuration)
    (Path(configuration.data or "") / "MRPC" / "dev.tsv").rename(
        Path(configuration.data or "") / "MRPC" / "gone.tsv"
    )
    try:
        failed = GridRun(configuration, cells, InProcess(configuration)).run()
    finally:
        (Path(configuration.data or "") / "MRPC" / "gone.tsv").rename(
            Path(configuration.data or "") / "MRPC" / "dev.tsv"
        )
    assert "dev.tsv, which does not exist" in failed[cells[0].path]


@pytest.mark.slow
def test_processes_give_the_same_results_and_survive_a_kill(
    configuration: RunConfiguration, tmp_path: Path
) -> None:
    cells = small(configuration)
    GridRun(configuration, cells, InProcess(configuration)).run()
    other = RunConfiguration(
        model=configuration.model, data=configuration.data, output=str(tmp_path / "other"), device="cpu"
    )
    engine = Workers(other, 2)
    for worker in engine.workers[:1]:
        assert worker.process.pid is not None
        os.kill(worker.process.pid, signal.SIGKILL)
        worker.process.join()  # it is dead before it gets a cell
    assert GridRun(other, cells, engine).run() == {}
    for cell in cells:
        first, second = configuration.results().get(cell), other.results().get(cell)
        assert first is not None and second is not None
        assert first["score"] == second["score"]


def test_cells_of_a_grid_have_places_of_their_own() -> None:
    cells = grid_cells([load_table("overview")], ["mrpc", "stsb"], SETTINGS, 2)
    assert len({cell.path for cell in cells}) == len(cells)
