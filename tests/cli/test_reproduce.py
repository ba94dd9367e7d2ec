from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from octavo.experiments.runner import _weights
from octavo.versions import __version__
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
    assert "2 of 2 cells are done" in result.stdout and "mrpc/w8a32/seed-0.json" in result.stdout
    assert "no files of cola" in result.stderr
    result = run("reproduce", "initial", *arguments, *part)
    assert "2 cells, 0 to run" in result.stdout
    result = run("tables", tmp_path / "results", "-o", tmp_path / "out.md")
    assert result.exit_code == 0, result.output
    assert "| W8A32 |" in (tmp_path / "out.md").read_text(encoding="utf-8")
    assert (tmp_path / "out-initial.svg").read_text(encoding="utf-8").startswith("<svg")
    document = json.loads(run("tables", tmp_path / "results", "--json").stdout)
    assert {score["row"] for score in document["scores"]} == {"fp32", "w8a32"}


def test_an_experiment_that_another_row_has_done_is_not_run_again(
    run: Run, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    """The best ranges of a task are one of those that the search has measured."""
    search, best = "ranges-mse-running-min-max-16x16", ("--row", "w8a8-best", "--only-seed", "0")
    result = run("reproduce", "range-estimators", *arguments, "--row", search, "--only-seed", "0")
    assert result.exit_code == 0, result.output
    planned = run("reproduce", "initial", *arguments, *best, "--dry-run", "--json")
    assert json.loads(planned.stdout)["missing"] == []
    assert not (tmp_path / "results" / "mrpc" / "w8a8-best").exists()
    result = run("reproduce", "initial", *arguments, *best)
    assert result.exit_code == 0, result.output
    assert "2 cells, 0 to run" in result.stdout
    assert "1 more are experiments that other rows have done" in result.stderr
    taken, measured = (
        json.loads((tmp_path / "results" / "mrpc" / row / "seed-0.json").read_text(encoding="utf-8"))
        for row in ("w8a8-best", search)
    )
    assert taken.pop("cell")["row"] == "w8a8-best" and measured.pop("cell")["row"] == search
    assert taken == measured and f"--row {search}" in taken["command"]


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_of_equal_experiments_of_a_run_one_is_run(
    run: Run, arguments: tuple[object, ...], tmp_path: Path, workers: int
) -> None:
    table = """octavo: 1
name: mine
title: Mine
source: here
tasks: [mrpc]
rows:
- {name: first, title: First, method: quantize, recipe: w8a8, seeds: 1}
- {name: second, title: Second, method: quantize, recipe: w8a8, seeds: 1}
"""
    (tmp_path / "mine.yaml").write_text(table, encoding="utf-8")
    part = (tmp_path / "mine.yaml", *arguments, "--only-seed", "0", "--workers", workers)
    planned = run("reproduce", *part, "--dry-run")
    assert "3 cells, 2 to run" in planned.stdout and "mrpc/second" not in planned.stdout
    assert "1 more are experiments that other rows have done or will do" in planned.stderr
    assert "0 of 3 cells are done" in planned.stdout
    result = run("reproduce", *part)
    assert result.exit_code == 0, result.output
    assert "[2/2] mrpc/first/seed-0.json" in result.stdout and "3 of 3 cells are done" in result.stdout
    first, second = (
        json.loads((tmp_path / "results" / "mrpc" / row / "seed-0.json").read_text(encoding="utf-8"))
        for row in ("first", "second")
    )
    assert second.pop("cell") == first.pop("cell") | {"row": "second"} and first == second


def test_a_dry_run_only_lists(run: Run, arguments: tuple[object, ...], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    result = run("reproduce", "main", *arguments, "--dry-run", "--json")
    document = json.loads(result.stdout)
    assert document["cells"] == len(document["missing"]) > 20
    assert [each["cell"] for each in document["plan"]] == document["missing"]
    assert sorted(tmp_path.iterdir()) == before
    result = run("reproduce", "main", *arguments, "--dry-run")
    lines = result.stdout.splitlines()
    assert "mrpc/fp32/lr0.001-bs16-e1-seed-0.json, 3 steps" in lines  # 48 of the 3668 published examples
    assert "mrpc/w8a8/seed-4.json" in lines
    assert "is not known before one of their kind has run in this folder" in result.stdout


def test_a_dry_run_tells_the_time_of_what_is_like_what_was_done(run: Run) -> None:
    kept = Path(__file__).parents[2] / "results" / "minilm"
    arguments = ("--model", "demo:minilm", "-o", kept, "--dry-run")
    result = run("reproduce", "overview", *arguments, "--task", "mrpc", "--task", "rte", "--row", "w8a8")
    assert result.exit_code == 0, result.output
    assert "20 cells, 10 to run" in result.stdout
    seconds = re.findall(r"rte/w8a8/seed-0\.json, about [0-9.]+ s", result.stdout)
    assert len(seconds) == 1 and "one after another" in result.stdout


def test_one_seed_is_planned_with_its_own_start(run: Run, arguments: tuple[object, ...]) -> None:
    def planned(*extra: object) -> list[str]:
        result = run("reproduce", "initial", *arguments, *extra, "--dry-run", "--json")
        assert result.exit_code == 0, result.output
        return [str(each["cell"]) for each in json.loads(result.stdout)["plan"]]

    float_cell = "mrpc/fp32/lr0.001-bs16-e1-seed-{}.json"
    one = ("--row", "w32a8", "--only-seed", "3")
    assert planned(*one) == [float_cell.format(3), "mrpc/w32a8/seed-3.json"]
    assert planned(*one, "--start-seed", "1") == [float_cell.format(1), "mrpc/w32a8/seed-3.json"]
    assert planned("--row", "fp32", "--only-seed", "3") == [float_cell.format(3)]
    both = ("--row", "fp32", "--row", "w32a8", "--start-seed", "1", "--only-seed", "0")
    expected = [float_cell.format(1), float_cell.format(0), "mrpc/w32a8/seed-0.json"]
    assert planned(*both) == expected


def test_one_seed_starts_from_what_the_folder_has_chosen(
    run: Run, arguments: tuple[object, ...], tiny: Path, tmp_path: Path
) -> None:
    start = "mrpc/fp32/lr0.001-bs16-e1-seed-2.json"
    (tmp_path / "results" / "mrpc").mkdir(parents=True)
    about = {
        "octavo": 1,
        "version": __version__,
        "model": tiny.name,
        "settings": "fast",
        "weights": _weights(str(tiny)),
    }
    (tmp_path / "results" / "grid.json").write_text(json.dumps(about), encoding="utf-8")
    file = tmp_path / "results" / "mrpc" / "start.json"
    file.write_text(json.dumps({"cell": start}), encoding="utf-8")
    one = ("--row", "w8a32", "--only-seed", "0", "--dry-run", "--json")
    result = run("reproduce", "initial", *arguments, *one)
    assert [each["cell"] for each in json.loads(result.stdout)["plan"]] == [start, "mrpc/w8a32/seed-0.json"]
    result = run("reproduce", "initial", *arguments, *one, "--start-seed", "1")
    assert result.exit_code == 2 and "starts mrpc from mrpc/fp32" in result.stderr


def test_the_time_to_stop_holds_within_a_cell(
    run: Run, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    endless = SETTINGS.replace("epochs: 1", "epochs: 100000")
    (tmp_path / "fast.yaml").write_text(endless, encoding="utf-8")
    began = time.monotonic()
    result = run("reproduce", "initial", *arguments, "--row", "fp32", "--stop-after", "2")
    assert result.exit_code == 0, result.output
    assert time.monotonic() - began < 60
    assert "0 of 5 cells are done" in result.stdout
    running = list((tmp_path / "results" / ".work" / "running").iterdir())
    assert len(running) == 1 and (running[0] / "checkpoint.safetensors").is_file()


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
    assert result.exit_code == 2 and "holds results with another model, settings, version" in result.stderr


def test_tables_of_a_folder_without_results_say_so(run: Run, tmp_path: Path) -> None:
    (tmp_path / "grid.json").write_text('{"octavo": 1, "model": "m"}', encoding="utf-8")
    for extra in ((), ("-o", tmp_path / "out.md")):
        result = run("tables", tmp_path, *extra)
        assert result.exit_code == 0, result.output
        assert f"{tmp_path} has no results yet; octavo reproduce adds to them" in result.stdout
    assert not (tmp_path / "out.md").exists()


def test_a_folder_without_results(run: Run, tmp_path: Path) -> None:
    result = run("tables", tmp_path)
    assert result.exit_code == 2 and "is no results folder" in result.stderr


def test_starts_are_carried_to_another_folder_and_not_trained_again(
    run: Run, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    carried = ("--starts", tmp_path / "starts")
    part = ("--row", "fp32", "--row", "w8a32", "--only-seed", "0")
    first = run("reproduce", "initial", *arguments, *part, *carried)
    assert first.exit_code == 0, first.output
    there = tmp_path / "there"
    moved = [there if each == tmp_path / "results" else each for each in arguments]
    second = run("reproduce", "initial", *moved, *part, *carried)
    assert second.exit_code == 0, second.output

    def results(folder: Path) -> list[dict[str, object]]:
        files = sorted((folder / "mrpc").rglob("seed-0.json")) + sorted(
            (folder / "mrpc").rglob("*-seed-0.json")
        )
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    mine, theirs = results(tmp_path / "results"), results(there)
    assert len(mine) == 2
    for key in ("score", "training", "start"):
        assert [each[key] for each in mine] == [each[key] for each in theirs]


def test_starts_of_other_settings_are_refused_and_kept(
    run: Run, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    carried = ("--row", "fp32", "--only-seed", "0", "--starts", tmp_path / "starts")
    assert run("reproduce", "initial", *arguments, *carried).exit_code == 0
    kept = {file: file.read_bytes() for file in (tmp_path / "starts").rglob("*") if file.is_file()}
    (tmp_path / "fast.yaml").write_text(SETTINGS.replace("fast", "other"), encoding="utf-8")
    there = [tmp_path / "there" if each == tmp_path / "results" else each for each in arguments]
    result = run("reproduce", "initial", *there, *carried)
    assert result.exit_code == 2 and 'starts with another settings (settings: "fast"' in result.stderr
    assert not (tmp_path / "there").exists()
    (tmp_path / "fast.yaml").write_text(
        SETTINGS.replace("epochs: 1", "epochs: 1, warmup: 0.5"), encoding="utf-8"
    )
    result = run("reproduce", "initial", *there, *carried)
    assert result.exit_code == 2 and "of other settings (warmup: 0.0, here 0.5)" in result.stderr
    assert {file: file.read_bytes() for file in (tmp_path / "starts").rglob("*") if file.is_file()} == kept


def test_results_of_other_data_are_refused(run: Run, arguments: tuple[object, ...], tmp_path: Path) -> None:
    part = ("--row", "fp32", "--only-seed", "0")
    assert run("reproduce", "initial", *arguments, *part).exit_code == 0
    write_mrpc(tmp_path / "more", dev=30)
    changed = [tmp_path / "more" if each == tmp_path / "glue" else each for each in arguments]
    result = run("reproduce", "initial", *changed, *part)
    assert result.exit_code == 2
    assert "has results of mrpc on other data: the files of dev were others" in result.stderr


def test_rows_that_a_model_cannot_have_are_told_and_left_out(
    run: Run, arguments: tuple[object, ...], tmp_path: Path
) -> None:
    table = """octavo: 1
name: mine
title: Mine
source: here
tasks: [mrpc]
rows:
- {name: fp32, title: FP32, method: finetune, seeds: 1}
- {name: w8a8, title: W8A8, method: quantize, recipe: w8a8, seeds: 1}
- name: other
  title: Other
  method: quantize
  recipe: w8a8
  overrides: [{sites: [segment], "off": true}]
"""
    (tmp_path / "mine.yaml").write_text(table, encoding="utf-8")
    result = run("reproduce", tmp_path / "mine.yaml", *arguments, "--only-seed", "0", "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [each["cell"].split("/")[1] for each in document["plan"]] == ["fp32", "w8a8"]
    assert list(document["impossible"]) == ["other"]
    assert "cannot have the row other: recipe 'w8a8': 'segment' matches no site" in result.stderr


def test_the_settings_that_a_model_was_given_are_said(run: Run, arguments: tuple[object, ...]) -> None:
    given = [each for each in arguments if each != "--settings" and Path(str(each)).name != "fast.yaml"]
    result = run("reproduce", "initial", *given, "--dry-run")
    assert "Settings minilm, for bert of width" in result.output
