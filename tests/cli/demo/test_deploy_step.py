from __future__ import annotations

from pathlib import Path

import pytest

import octavo
from octavo.cli.console import Console
from octavo.cli.demo import deploy_step
from octavo.cli.demo.steps import STEPS
from octavo.cli.demo.story import Story


@pytest.fixture
def told(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Story:
    monkeypatch.setattr(deploy_step, "MODEL", str(tiny))
    story = Story(console=Console(), folder=tmp_path, output=None)
    story.encoder = octavo.load(tiny)
    story.calibration = ["the dog barks.", "a cat sleeps on the mat."]
    story.texts = ["a dog sleeps.", "the cat sits."]
    story.results["recipes"] = []
    return story


def test_the_demo_ends_with_integers() -> None:
    assert STEPS[-1] is deploy_step.deploy


def test_it_exports_checks_and_times(
    told: Story, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(deploy_step, "RUNTIMES", ("onnxruntime",))
    monkeypatch.setattr(deploy_step, "SHAPES", ((1, 8), (2, 16)))
    deploy_step.deploy(told)
    assert (tmp_path / "int8-onnxruntime.onnx").is_file()
    said = " ".join(capsys.readouterr().out.split())
    assert "12 integer kernels, no quantized layer in float" in said
    assert (
        "folded into the weights where those can take them, and spill over into a few extra channels" in said
    )
    rows = told.results["deploy"]["rows"]
    assert [row["kind"] for row in rows] == ["float", "integer"]


def test_without_a_runtime_it_says_what_to_install(
    told: Story, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(deploy_step, "find_spec", lambda name: None)
    deploy_step.deploy(told)
    assert "pip install 'octavo[onnx]'" in capsys.readouterr().out
    assert "deploy" not in told.results
