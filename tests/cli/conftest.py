from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from octavo.cli.app import app

Run = Callable[..., Result]

TEXTS = ("the dog barks.", "a cat sleeps on the mat.", "rain again\tit rains once more", "who goes there?")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `octavo` with arguments in this process, on the CPU and without the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="session")
def tiny(tiny_bert_folder: Callable[..., Path]) -> Path:
    """A folder with a tiny bare BERT."""
    return tiny_bert_folder()


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A file with a few texts and a pair."""
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def saved(run: Run, tiny: Path, texts: Path, tmp_path: Path) -> Path:
    """A folder with the tiny BERT quantized by the recipe int8."""
    folder = tmp_path / "int8"
    assert run("quantize", tiny, "--recipe", "int8", "--calibration", texts, "-o", folder).exit_code == 0
    return folder
