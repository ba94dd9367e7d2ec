from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.errors import OutputError
from octavo.experiments.cell import Cell
from octavo.experiments.results import Results, read_results
from octavo.experiments.settings import load_settings
from octavo.methods.training.hyperparameters import Hyperparameters

CELL = Cell(
    row="fp32", task="cola", method="finetune", seed=0, hyper=Hyperparameters(learning_rate=1e-4, epochs=6)
)
KEPT = Path(__file__).parents[2] / "results" / "minilm"


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    results = Results(tmp_path / "results", {"model": "a"})
    assert not (tmp_path / "results").exists()
    results.begin()
    Results(tmp_path / "results", {"model": "a"}).begin()
    message = r'holds results with another model \(model: "a", now "b"\); give another folder'
    with pytest.raises(OutputError, match=message):
        Results(tmp_path / "results", {"model": "b"})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="holds other files"):
        Results(tmp_path / "other", {"model": "a"})
    with pytest.raises(OutputError, match="is no results folder"):
        read_results(tmp_path / "other")


def test_files_are_written_as_they_always_were(tmp_path: Path) -> None:
    file = KEPT / "cola" / "fp32" / "lr0.0001-bs32-e6-seed-0.json"
    kept = json.loads(file.read_text(encoding="utf-8"))
    cell = Cell(
        row="fp32",
        task="cola",
        method="finetune",
        seed=0,
        hyper=Hyperparameters(**kept["cell"]["hyperparameters"]),
    )
    about = json.loads((KEPT / "grid.json").read_text(encoding="utf-8"))
    results = Results(tmp_path / "results", {key: about[key] for key in ("version", "model", "settings")})
    results.put(cell, {key: value for key, value in kept.items() if key not in ("octavo", "cell")})
    assert (tmp_path / "results" / cell.path).read_bytes() == file.read_bytes()
    assert (tmp_path / "results" / "grid.json").read_bytes() == (KEPT / "grid.json").read_bytes()


def test_the_start_of_a_task_is_remembered(tmp_path: Path) -> None:
    results = Results(tmp_path / "results", {"model": "a"})
    assert results.start("cola") is None
    results.put_start(CELL)
    assert results.start("cola") == CELL.path
    results.put(CELL, {"score": 1.0})
    assert [result["score"] for result in results.all()] == [1.0]


def test_the_results_in_the_repository_go_on(tmp_path: Path) -> None:
    results = read_results(KEPT)
    start = results.start("mrpc")
    assert start == "mrpc/fp32/lr7e-05-bs32-e10-seed-2.json"
    hyper = load_settings("minilm").finetuning("mrpc")[0]
    cell = Cell(row="fp32", task="mrpc", method="finetune", seed=2, hyper=hyper)
    assert cell.path == start and results.get(cell) is not None
