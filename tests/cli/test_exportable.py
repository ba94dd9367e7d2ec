from __future__ import annotations

from pathlib import Path

import pytest

from octavo.cli import exportable
from octavo.cli.demo.story import Story
from octavo.runtime.translate.operations import TABLE
from tests.cli.conftest import Run

MISSING = (
    "cannot be exported: the operation aten.gelu.default (in encoder.layer.0.intermediate."
    "intermediate_act_fn, GELUActivation) has no ONNX translation here; export is not possible"
)


@pytest.fixture
def no_gelu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A translator that lacks an operation, as it lacks those of TAPAS."""
    monkeypatch.delitem(TABLE, "gelu")


@pytest.mark.usefixtures("no_gelu")
def test_quantize_warns_and_goes_on(run: Run, tiny: Path, texts: Path, tmp_path: Path) -> None:
    result = run("quantize", tiny, "--recipe", "w8a8", "--calibration", texts, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert f"Warning: {tiny} {MISSING}; what is saved can be simulated" in result.stderr
    assert (tmp_path / "out" / "octavo.json").is_file()
    refused = run("export", tmp_path / "out", "-o", tmp_path / "model.onnx")
    assert refused.exit_code == 2 and "the operation aten.gelu.default" in refused.stderr


@pytest.mark.usefixtures("no_gelu")
def test_the_warning_comes_before_calibration(run: Run, tiny: Path, tmp_path: Path) -> None:
    result = run("quantize", tiny, "--recipe", "w8a8", "-o", tmp_path / "out")
    assert result.exit_code == 2
    warning, error = result.stderr.splitlines()
    assert MISSING in warning and "give calibration texts" in error


def test_what_can_be_exported_gets_no_warning(run: Run, tiny: Path, tmp_path: Path) -> None:
    assert run("quantize", tiny, "--recipe", "w8a32", "-o", tmp_path / "out").stderr == ""


@pytest.mark.usefixtures("no_gelu")
def test_without_the_package_that_writes_files_nothing_is_said(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exportable, "find_spec", lambda name: None)
    assert run("quantize", tiny, "--recipe", "w8a32", "-o", tmp_path / "out").stderr == ""


@pytest.mark.usefixtures("no_gelu")
def test_the_demo_ends_in_a_file_and_is_refused_before_it_calibrates(
    run: Run, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.cli.demo.steps.MODEL", str(tiny))
    monkeypatch.setattr(Story, "try_recipe", lambda *_: pytest.fail("it calibrates"))
    result = run("demo", "-o", tmp_path / "kept")
    assert result.exit_code == 2 and f"Error: {tiny} {MISSING}" in result.stderr
    assert not (tmp_path / "kept").exists()
