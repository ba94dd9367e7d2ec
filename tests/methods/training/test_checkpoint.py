from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from octavo.errors import OutputError
from octavo.methods.training.checkpoint import read_checkpoint, write_checkpoint

SETTINGS = {"seed": 0}


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
    write_checkpoint(tmp_path / "c", *first, best, {"settings": SETTINGS, "done": 7})
    found = read_checkpoint(tmp_path / "c", *second, SETTINGS)
    assert found is not None
    assert found[0]["done"] == 7 and torch.equal(found[1]["weight"], best["weight"])
    for module, optimizer in (first, second):
        module(torch.ones(3)).square().sum().backward()
        optimizer.step()
    assert torch.equal(first[0].weight, second[0].weight)


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "none", *stepped(0), SETTINGS) is None


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, optimizer = stepped(0)
    write_checkpoint(tmp_path / "c", module, optimizer, {}, {"settings": SETTINGS, "done": 1})

    def full(*arguments: object) -> None:
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr("octavo.methods.training.checkpoint.save_file", full)
    with pytest.raises(OutputError, match="No space left on device; the checkpoint before it is whole"):
        write_checkpoint(tmp_path / "c", module, optimizer, {}, {"settings": SETTINGS, "done": 2})
    found = read_checkpoint(tmp_path / "c", module, optimizer, SETTINGS)
    assert found is not None and found[0]["done"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
