"""Checkpoints of training: a folder that is complete or absent, plain tensors and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from octavo.errors import OutputError, SavedModelError
from octavo.files import write_folder

_TENSORS, _STATE = "checkpoint.safetensors", "checkpoint.json"


def write_checkpoint(
    folder: Path,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    best: Mapping[str, Tensor],
    state: Mapping[str, Any],
) -> None:
    """Replace the checkpoint: parameters, Adam's moments, the best parameters so far and plain state."""
    tensors = {f"module:{name}": value for name, value in module.state_dict().items()}
    tensors |= {f"best:{name}": value for name, value in best.items()}
    for place, parameter in enumerate(_parameters(optimizer)):
        tensors |= {
            f"optimizer:{place}:{key}": value for key, value in optimizer.state.get(parameter, {}).items()
        }
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    with write_folder(folder, force=True) as draft:
        try:
            save_file(plain, draft / _TENSORS)
        except SafetensorError as error:  # such as a full disk; the checkpoint before stays
            raise OutputError(
                f"{folder} cannot be written: {error}; the checkpoint before it is whole"
            ) from error
        (draft / _STATE).write_text(json.dumps(state) + "\n", encoding="utf-8")


def read_checkpoint(
    folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    """Put a checkpoint into module and optimizer; return its state and best parameters, None without one.

    A checkpoint of other settings is an error: to continue it would give a result that belongs to neither.
    """
    if not (folder / _STATE).is_file():
        return None
    try:
        state: dict[str, Any] = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        with safe_open(folder / _TENSORS, framework="pt") as opened:
            tensors = {key: opened.get_tensor(key) for key in opened.keys()}
    except (OSError, ValueError, SafetensorError) as error:
        raise SavedModelError(f"{folder} is damaged ({error}); delete it to train from the start") from error
    if state.get("settings") != json.loads(json.dumps(settings)):
        raise SavedModelError(
            f"{folder} belongs to a training with other settings; delete it or use another folder"
        )
    module.load_state_dict(_below(tensors, "module"))
    for place, parameter in enumerate(_parameters(optimizer)):
        moments = _below(tensors, f"optimizer:{place}")
        if moments:
            optimizer.state[parameter] = {
                key: _like(value, parameter, optimizer) for key, value in moments.items()
            }
    return state, _below(tensors, "best")


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
