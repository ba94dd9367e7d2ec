"""Launching: several processes, mixed precision and trackers come from accelerate (extra `train`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from octavo.errors import MissingExtraError, SpecError

if TYPE_CHECKING:
    from accelerate import Accelerator

PRECISIONS = ("no", "bf16", "fp16")


def accelerator_for(precision: str, log: str | None, output: Path, cpu: bool = False) -> Accelerator | None:
    """Return an accelerator if one is needed: under torchrun, for mixed precision or for a tracker."""
    if precision not in PRECISIONS:
        raise SpecError(f"unknown mixed precision {precision!r}; use {', '.join(PRECISIONS)}")
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    if alone and precision == "no" and log is None:
        return None
    try:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
    except ImportError as error:
        raise MissingExtraError("train", "training in several processes") from error
    if alone:  # settings of a training before this one stay in the process, and others would be refused
        AcceleratorState._reset_state(reset_partial_state=True)
    try:
        made = Accelerator(mixed_precision=precision, cpu=cpu, log_with=log, project_dir=str(output) + "-log")
        if log is not None:
            made.init_trackers("octavo")
    except (ValueError, ImportError) as error:
        raise SpecError(f"accelerate refuses: {' '.join(str(error).split())}") from error
    return made


def restore_precision(module: nn.Module) -> None:
    """Let a trained module compute in full precision again: accelerate has wrapped its forward pass."""
    module.__dict__.pop("forward", None)
    module.__dict__.pop("_original_forward", None)
