from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


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


@pytest.mark.parametrize("option", [("--runtime", "openvino"), ("--opset", "17"), ("--no-check",)], ids=str)
def test_encodings_refuse_options_of_onnx(run: Run, tiny: Path, tmp_path: Path, option: tuple[str]) -> None:
    done = run("export", tiny, "--to", "encodings", "-o", tmp_path / "encodings.json", *option)
    assert done.exit_code == 2 and "--to encodings does not read" in done.stderr
