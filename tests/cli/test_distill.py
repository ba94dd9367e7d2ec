from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli.conftest import Run
from tests.methods.distillation.test_distilling import sentences

QUICK = ("--epochs", 1, "--batch-size", 16, "--calibration-texts", 12, "--learning-rate", 1e-3)


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A file with enough texts to learn from."""
    file = tmp_path / "many.txt"
    file.write_text("\n".join(sentences(136)) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "distilled"


def refused(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    return line


def test_it_saves_an_ordinary_model_and_says_what_was_mended(
    run: Run, tiny: Path, many: Path, output: Path
) -> None:
    result = run("distill", tiny, "--recipe", "w4a8-qat", "--texts", many, *QUICK, "-o", output, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    found = document["distillation"]
    assert found["error_after"] <= found["error_before"] and found["held_out"] == 14
    assert document["distilled"]["settings"]["epochs"] == 1
    assert json.loads((output / "octavo.json").read_text())["provenance"]["distilled"]["texts"] == 136
    assert sorted(path.name for path in output.parent.iterdir()) == ["distilled", "many.txt"]
    result = run("evaluate", output, "--against", tiny, "--texts", many)
    assert result.exit_code == 0, result.output


def test_what_is_left_of_other_settings_is_refused_and_of_the_same_resumed(
    run: Run, tiny: Path, many: Path, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("distill", tiny, "--recipe", "w8a8", "--texts", many, *QUICK, "-o", output)
    with monkeypatch.context() as patch:
        patch.setattr("octavo.graph.quantizers.attach.QuantizedEncoder.save", _interrupted)
        assert run(*command).exit_code == 130
    (work,) = output.parent.glob(".distilled-*.checkpoint")
    assert (
        "with another hidden (hidden: 0.0, now 1.0)" in refused(run(*command, "--hidden", 1))
        and work.is_dir()
    )
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "holds an interrupted run" in result.stderr and "Error on 14 texts held out" in result.stdout
    assert not work.exists()


def _interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_bad_input_is_one_sentence_and_leaves_nothing(
    run: Run, tiny: Path, many: Path, texts: Path, output: Path, tmp_path: Path
) -> None:
    def tried(*options: object) -> str:
        return refused(run("distill", tiny, *options, "-o", output))

    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    before = sorted(tmp_path.iterdir())
    assert "holds no text" in tried("--recipe", "w8a8", "--texts", empty)
    assert "4 different texts are too few" in tried("--recipe", "w8a8", "--texts", texts)
    assert "no preset 'w8a9'" in tried("--recipe", "w8a9", "--texts", many)
    assert "dynamic ranges" in tried("--recipe", "q8bert", "--texts", many)
    assert "temperature must be positive" in tried("--recipe", "w8a8", "--texts", many, "--temperature", 0)
    assert "ranges alone leave nothing to train" in tried(
        "--recipe", "q8bert-qat", "--texts", many, "--learn", "ranges"
    )
    assert sorted(tmp_path.iterdir()) == before
    output.mkdir()
    (output / "mine.txt").write_text("mine")
    assert "distilled" in tried("--recipe", "w8a8", "--texts", many)
    assert (output / "mine.txt").read_text() == "mine"
