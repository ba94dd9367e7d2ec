from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.experiments.conftest import write_mrpc

SETTINGS = """octavo: 1
name: fast
finetune: {mrpc: {learning_rate: 1.0e-3, batch_size: 16, epochs: 1}}
calibration: {default: [1, 2]}
"""


@pytest.fixture
def arguments(tiny: Path, tmp_path: Path) -> tuple[object, ...]:
    write_mrpc(tmp_path / "glue")
    (tmp_path / "fast.yaml").write_text(SETTINGS, encoding="utf-8")
    settings = ("--settings", tmp_path / "fast.yaml", "--device", "cpu")
    return ("--model", tiny, "--data", tmp_path / "glue", "-o", tmp_path / "results", *settings)


def test_reproduce_then_tables(run: Run, arguments: tuple[object, ...], tmp_path: Path) -> None:
    part = ("--row", "w8a32", "--only-seed", "0")
    result = run("reproduce", "initial", *arguments, *part)
    assert result.exit_code == 0, result.output
    assert "6 of 6 cells are done" in result.stdout and "mrpc/w8a32/seed-0.json" in result.stdout
    assert "no files of cola" in result.stderr
    result = run("reproduce", "initial", *arguments, *part)
    assert "6 cells, 0 to run" in result.stdout
    result = run("tables", tmp_path / "results", "-o", tmp_path / "out.md")
    assert result.exit_code == 0, result.output
    assert "| W8A32 |" in (tmp_path / "out.md").read_text(encoding="utf-8")
    assert (tmp_path / "out-initial.svg").read_text(encoding="utf-8").startswith("<svg")
    document = json.loads(run("tables", tmp_path / "results", "--json").stdout)
    assert {score["row"] for score in document["scores"]} == {"fp32", "w8a32"}


def test_a_dry_run_only_counts(run: Run, arguments: tuple[object, ...], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    result = run("reproduce", "main", *arguments, "--dry-run", "--json")
    document = json.loads(result.stdout)
    assert document["cells"] == len(document["missing"]) > 20
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        (("--row", "w8a33"), "no row 'w8a33' in initial; did you mean 'w8a32'"),
        (("--task", "mrp"), "no task 'mrp' in initial"),
        (("--engine", "slurm"), "unknown engine 'slurm'; use local or ray"),
    ],
)
def test_bad_choices(run: Run, arguments: tuple[object, ...], extra: tuple[str, ...], told: str) -> None:
    result = run("reproduce", "initial", *arguments, *extra)
    assert result.exit_code == 2
    assert told in result.stderr


def test_results_of_another_model_are_refused(
    run: Run, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "grid.json").write_text('{"octavo": 1, "model": "other"}', encoding="utf-8")
    result = run("reproduce", "initial", *arguments)
    assert result.exit_code == 2 and "holds results with another version, model" in result.stderr


def test_a_folder_without_results(run: Run, tmp_path: Path) -> None:
    result = run("tables", tmp_path)
    assert result.exit_code == 2 and "is no results folder" in result.stderr
