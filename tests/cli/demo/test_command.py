from __future__ import annotations

import json
from pathlib import Path

import pytest

import octavo
from octavo.cli.demo import command
from octavo.cli.demo.steps import STEPS, conclude
from octavo.cli.demo.story import Story
from octavo.graph import Encoder
from octavo.tasks.demo import split_demo_texts
from tests.cli.conftest import Run


def prepare(monkeypatch: pytest.MonkeyPatch, encoder: Encoder, calibration: int, every: int) -> None:
    """Have the demo work on a model that is loaded already, on fewer texts, up to the table of recipes."""
    first, second = split_demo_texts()
    monkeypatch.setattr(command, "STEPS", STEPS[: STEPS.index(conclude) + 1])
    monkeypatch.setattr(octavo, "load", lambda *_, **__: encoder, raising=False)
    monkeypatch.setattr("octavo.tasks.demo.split_demo_texts", lambda: (first[:calibration], second[::every]))


def test_it_tells_the_story_and_keeps_the_models(
    run: Run, tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(monkeypatch, octavo.load(tiny), calibration=2, every=20)
    result = run("demo", "-o", tmp_path / "kept")
    assert result.exit_code == 0, result.output
    for piece in ("29 activations", "Plain 8 bits break it", "w8a8-peg6", "neighbours kept", "Kept in"):
        assert piece in result.stdout
    assert "octavo quantize MODEL --recipe int8 --calibration FILE -o DIR" in result.stdout
    names = {path.name for path in (tmp_path / "kept").iterdir()}
    assert names == {"w8a8", "w8a8-mp", "w8a8-peg6", "demo.json"}


def test_json_shows_the_damage_and_the_repairs(
    run: Run, demo_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(monkeypatch, demo_encoder, calibration=16, every=12)
    document = json.loads(run("demo", "--json").stdout)
    cosine = {entry["recipe"]: entry["cosine"]["mean"] for entry in document["recipes"]}
    assert cosine["w8a8"] < 0.9 < cosine["w8a8-peg6"]
    assert cosine["w8a8-mp"] > 0.95
    assert document["outlier"]["widest"] > 20 * document["outlier"]["median"]


def test_an_existing_output_is_refused_before_any_work(run: Run, tmp_path: Path) -> None:
    result = run("demo", "-o", tmp_path)
    assert result.exit_code == 2
    assert "exists already" in result.stderr


def test_a_step_that_fails_leaves_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(story: Story) -> None:
        (story.folder / "half").mkdir()
        raise octavo.OctavoError("no more")

    monkeypatch.setattr(command, "STEPS", (fails,))
    result = run("demo", "-o", tmp_path / "kept")
    assert (result.exit_code, result.stderr) == (2, "Error: no more\n")
    assert list(tmp_path.iterdir()) == []
