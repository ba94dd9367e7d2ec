"""Checkpoints of training: one entry of a ledger that says which training it belongs to."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from octavo.errors import OutputError, SavedModelError
from octavo.ledger import Ledger

_ABOUT, _KEY = "training.json", "checkpoint"
_FILE = f"{_KEY}.safetensors"


class Checkpoint:
    """The state of one training in a folder of its own.

    A folder of another training, or with other files, is refused before the first step with what differs: to
    continue it would give a result that belongs to neither.

    Arguments:
        about: what the training depends on, as plain data: where it starts from, data, settings.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self._folder = folder
        self._ledger = Ledger(folder, about, name=_ABOUT, noun="the checkpoint of a training")

    def write(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        best: Mapping[str, Tensor],
        state: Mapping[str, Any],
    ) -> None:
        """Replace the checkpoint: parameters, Adam's moments, the best parameters so far and plain state."""
        tensors = {f"module:{name}": value for name, value in module.state_dict().items()}
        tensors |= {f"best:{name}": value for name, value in best.items()}
        for index, parameter in enumerate(_parameters(optimizer)):
            moments = optimizer.state.get(parameter, {})
            tensors |= {f"optimizer:{index}:{key}": value for key, value in moments.items()}
        try:
            self._ledger.put(_KEY, state, tensors)
        except OutputError as error:  # such as a full disk
            raise OutputError(f"{error}; the checkpoint before it is whole") from error

    def read(
        self, module: nn.Module, optimizer: torch.optim.Optimizer
    ) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Restore module and optimizer; return plain state and best parameters, None without a checkpoint."""
        entry = self._ledger.get_tensors(_KEY)
        if entry is None:
            if (self._folder / _FILE).exists():
                raise SavedModelError(f"{self._folder} is damaged; delete it to train from the start")
            return None
        state, tensors = entry
        module.load_state_dict(_below(tensors, "module"))
        for index, parameter in enumerate(_parameters(optimizer)):
            moments = _below(tensors, f"optimizer:{index}")
            if moments:
                optimizer.state[parameter] = {
                    key: _like(value, parameter, optimizer) for key, value in moments.items()
                }
        return state, _below(tensors, "best")


def checkpoint_beside(output: Path, seed: int) -> Path:
    """Return the folder of the checkpoint of a training whose result will be saved as `output`."""
    return output.with_name(f".{output.name}-seed-{seed}.checkpoint")


def discard_checkpoints_beside(output: Path) -> None:
    """Remove the checkpoints of all seeds when the result has been saved."""
    for folder in output.parent.glob(f".{output.name}-seed-*.checkpoint"):
        discard_checkpoint(folder)


def discard_checkpoint(folder: Path) -> None:
    """Remove the checkpoint of a finished training; a folder without one, and other files, stay."""
    if not (folder / _ABOUT).is_file():
        return
    for draft in [*folder.glob(f".{_FILE}-*"), *folder.glob(f".{_ABOUT}-*")]:  # of a run that was killed
        shutil.rmtree(draft, ignore_errors=True)
    for name in (_FILE, _ABOUT):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        name.removeprefix(f"{prefix}:"): value
        for name, value in tensors.items()
        if name.startswith(f"{prefix}:")
    }


def _like(value: Tensor, parameter: Tensor, optimizer: torch.optim.Optimizer) -> Tensor:
    """Put a moment beside its parameter; the count of steps only if the optimizer wants it there."""
    beside = value.dim() > 0 or optimizer.defaults.get("capturable") or optimizer.defaults.get("fused")
    return value.to(parameter.device) if beside else value
