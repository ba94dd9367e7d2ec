from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from octavo.errors import OutputError
from octavo.experiments.cell import Cell
from octavo.experiments.starts import Starts
from octavo.methods.training.hyperparameters import Hyperparameters

ABOUT = {"version": "1", "model": "m", "settings": "s"}
DATA = {"train": {"sha256": "a"}, "dev": {"sha256": "b"}}
CELL = Cell(row="fp32", task="mrpc", method="finetune", seed=0, hyper=Hyperparameters(learning_rate=1e-4))


@pytest.fixture
def starts(tmp_path: Path) -> Starts:
    made = Starts(tmp_path / "starts", ABOUT)
    made.write(CELL, {"weight": torch.arange(3.0)}, {"data": DATA, "training": {"steps": 7}})
    return made


def test_a_start_is_read_as_it_was_written(starts: Starts) -> None:
    kept = Starts(starts.folder, ABOUT).read(CELL, DATA)
    assert kept is not None
    assert kept[0]["weight"].tolist() == [0.0, 1.0, 2.0] and kept[1]["training"] == {"steps": 7}


def test_what_is_missing_or_damaged_is_missing(starts: Starts) -> None:
    assert starts.read(replace(CELL, seed=1), DATA) is None
    (starts.folder / CELL.path).with_suffix(".safetensors").write_bytes(b"half a file")
    assert CELL not in starts and starts.read(CELL, DATA) is None


@pytest.mark.parametrize("key", ["version", "model", "settings"])
def test_starts_of_something_else_are_refused(starts: Starts, key: str) -> None:
    with pytest.raises(OutputError, match=f"holds fine-tuned starts with another {key}"):
        Starts(starts.folder, ABOUT | {key: "2"})


def test_a_start_of_other_settings_is_refused(starts: Starts) -> None:
    other = replace(CELL, hyper=Hyperparameters(learning_rate=1e-4, warmup=0.1))  # of the same name
    with pytest.raises(OutputError, match=r"of other settings \(warmup: 0.0, here 0.1\)"):
        starts.read(other, DATA)


def test_a_start_of_other_data_is_refused(starts: Starts) -> None:
    with pytest.raises(OutputError, match=r"of other data \(sha256: b, here c\)"):
        starts.read(CELL, DATA | {"dev": {"sha256": "c"}})
