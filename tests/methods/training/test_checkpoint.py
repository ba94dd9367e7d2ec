from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from octavo.errors import OutputError, SavedModelError
from octavo.methods.training.checkpoint import (
    Checkpoint,
    checkpoint_beside,
    discard_checkpoint,
    discard_checkpoints_beside,
)

ABOUT = {"seed": 0}


def stepped(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    module = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1, fused=True)
    module(torch.ones(3)).sum().backward()
    optimizer.step()
    return module, optimizer


def test_parameters_and_moments_come_back(tmp_path: Path) -> None:
    first, second = stepped(0), stepped(1)
    best = {"weight": torch.zeros(2, 3)}
    Checkpoint(tmp_path / "c", ABOUT).write(*first, best, {"done": 7})
    restored = Checkpoint(tmp_path / "c", ABOUT).read(*second)
    assert restored is not None
    assert restored[0]["done"] == 7 and torch.equal(restored[1]["weight"], best["weight"])
    for module, optimizer in (first, second):
        module(torch.ones(3)).square().sum().backward()
        optimizer.step()
    assert torch.equal(first[0].weight, second[0].weight)


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path / "none", ABOUT).read(*stepped(0)) is None
    assert not (tmp_path / "none").exists()


def test_a_checkpoint_of_another_training_is_refused(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "c", ABOUT).write(*stepped(0), {}, {"done": 1})
    with pytest.raises(
        OutputError, match=r"holds the checkpoint of a training with another seed \(seed: 0, now 1\)"
    ):
        Checkpoint(tmp_path / "c", {"seed": 1})


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    Checkpoint(tmp_path / "c", ABOUT).write(*stepped(0), {}, {"done": 1})
    (tmp_path / "c" / "checkpoint.safetensors").write_bytes(b"broken")
    with pytest.raises(SavedModelError, match="is damaged; delete it to train from the start"):
        Checkpoint(tmp_path / "c", ABOUT).read(*stepped(0))


def test_a_folder_with_other_files_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="holds other files"):
        Checkpoint(tmp_path, ABOUT)
    discard_checkpoint(tmp_path)
    assert (tmp_path / "thesis.txt").read_text(encoding="utf-8") == "mine"


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, optimizer = stepped(0)
    checkpoint = Checkpoint(tmp_path / "c", ABOUT)
    checkpoint.write(module, optimizer, {}, {"done": 1})

    def full(*arguments: object, **options: object) -> None:
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(OutputError, match="No space left on device; the checkpoint before it is whole"):
        checkpoint.write(module, optimizer, {}, {"done": 2})
    restored = checkpoint.read(module, optimizer)
    assert restored is not None and restored[0]["done"] == 1
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == [
        "checkpoint.safetensors",
        "training.json",
    ]


def test_checkpoints_of_all_seeds_go_when_the_result_is_saved(tmp_path: Path) -> None:
    for seed in (0, 1):
        Checkpoint(checkpoint_beside(tmp_path / "model", seed), ABOUT).write(*stepped(seed), {}, {"done": 1})
    kept = checkpoint_beside(tmp_path / "other", 0)
    Checkpoint(kept, ABOUT).write(*stepped(0), {}, {"done": 1})
    discard_checkpoints_beside(tmp_path / "model")
    assert list(tmp_path.iterdir()) == [kept]
