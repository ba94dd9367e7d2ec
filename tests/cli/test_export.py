from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.fixture
def saved(run: Run, tiny: Path, texts: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "int8"
    assert run("quantize", tiny, "--recipe", "int8", "--calibration", texts, "-o", folder).exit_code == 0
    return folder


def test_export_writes_checks_and_reports(run: Run, saved: Path, tmp_path: Path) -> None:
    done = run("export", saved, "-o", tmp_path / "model.onnx", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["integers"]["products"] == found["integers"]["kernels"] == 16
    assert (tmp_path / "model.onnx").stat().st_size == pytest.approx(found["megabytes"] * 1e6)


def test_encodings_are_json(run: Run, saved: Path, tmp_path: Path) -> None:
    done = run("export", saved, "--to", "encodings", "-o", tmp_path / "encodings.json")
    assert done.exit_code == 0 and "Wrote" in done.stdout
    assert json.loads((tmp_path / "encodings.json").read_text())["recipe"] == "int8"


def test_a_float_model_has_no_encodings(run: Run, tiny: Path, tmp_path: Path) -> None:
    done = run("export", tiny, "--to", "encodings", "-o", tmp_path / "encodings.json")
    assert done.exit_code == 2 and "run octavo quantize first" in done.stderr


def test_an_existing_file_needs_force(run: Run, saved: Path, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_text("mine")
    done = run("export", saved, "-o", tmp_path / "model.onnx")
    assert done.exit_code == 2 and "exists already" in done.stderr
    assert run("export", saved, "-o", tmp_path / "model.onnx", "--force", "--no-check").exit_code == 0


def test_bench_shows_a_table_and_writes_a_plot(
    run: Run, tiny: Path, saved: Path, texts: Path, tmp_path: Path
) -> None:
    assert run("export", saved, "-o", tmp_path / "model.onnx", "--no-check").exit_code == 0
    options = ["--batches", "1", "--lengths", "4,8", "--seconds", "0", "--no-memory", "--threads", "1"]
    out = ["--texts", texts, "-o", tmp_path / "bench"]
    done = run("bench", tiny, saved, tmp_path / "model.onnx", *options, *out)
    assert done.exit_code == 0, done.output
    assert "ms 1 x 8" in done.stdout and "simulated" in done.stdout and "integer" in done.stdout
    assert (tmp_path / "bench" / "bench.svg").read_text().startswith("<svg")
    assert len(json.loads((tmp_path / "bench" / "bench.json").read_text())["rows"]) == 3


def test_bench_refuses_lengths_that_are_no_numbers(run: Run, tiny: Path) -> None:
    done = run("bench", tiny, "--lengths", "short")
    assert done.exit_code == 2 and "--lengths must be numbers with commas between them" in done.stderr


@pytest.mark.parametrize("option", [("--runtime", "openvino"), ("--opset", "17"), ("--no-check",)], ids=str)
def test_encodings_refuse_options_of_onnx(run: Run, tiny: Path, tmp_path: Path, option: tuple[str]) -> None:
    done = run("export", tiny, "--to", "encodings", "-o", tmp_path / "encodings.json", *option)
    assert done.exit_code == 2 and "--to encodings does not read" in done.stderr
