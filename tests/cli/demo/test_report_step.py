from __future__ import annotations

from pathlib import Path

import pytest

import octavo
from octavo.cli.console import Console
from octavo.cli.demo.report_step import report
from octavo.cli.demo.steps import STEPS
from octavo.cli.demo.story import Story


def story(tiny: Path, folder: Path, output: Path | None) -> Story:
    told = Story(console=Console(), folder=folder, output=output)
    told.encoder, told.calibration = octavo.load(tiny), ["the dog barks.", "a cat sleeps on the mat."]
    return told


def test_the_report_is_a_step_of_the_demo() -> None:
    assert report in STEPS


def test_the_report_goes_where_the_models_go(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = story(tiny, tmp_path / "draft", tmp_path / "kept")
    report(told)
    assert (tmp_path / "draft" / "report" / "report.html").is_file()
    assert told.results["report"] == str(tmp_path / "kept" / "report" / "report.html")
    assert told.results["report"] in capsys.readouterr().out.replace("\n", "")


def test_without_an_output_it_lasts_all_the_same(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    told = story(tiny, tmp_path / "vanishes", None)
    report(told)
    assert Path(told.results["report"]).is_file()
    assert "vanishes" not in told.results["report"]
