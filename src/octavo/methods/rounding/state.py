"""What a long run of rounding leaves behind, so that it can go on where it was interrupted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from octavo.errors import OutputError, SavedModelError
from octavo.files import write_file
from octavo.graph import Site

_SETTINGS = "settings.json"


class WorkFolder:
    """A folder with one file for each finished weight and the settings they were made with.

    A folder that holds another run's settings is an error that says what differs.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        file = folder / _SETTINGS
        if file.exists():
            _check_same(folder, _read(file), dict(settings))
            return
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise OutputError(f"{folder} is no folder of an interrupted run; give an empty or a new folder")
        with write_file(file) as draft:
            draft.write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    def load(self, site: Site) -> Tensor | None:
        """The integers of a finished weight, or None."""
        file = self._file(site)
        if not file.exists():
            return None
        try:
            with safe_open(file, framework="pt") as opened:
                integers: Tensor = opened.get_tensor("integers")
        except (SafetensorError, OSError) as error:
            advice = f"delete it to round {site.name} again"
            raise SavedModelError(f"{file} cannot be read ({error}); {advice}") from error
        if tuple(integers.shape) != site.shape:
            raise SavedModelError(f"{file} does not fit {site.name}; delete it to round the weight again")
        return integers.to(torch.int32)

    def save(self, site: Site, integers: Tensor) -> None:
        """Write a finished weight; the file is complete or absent."""
        with write_file(self._file(site), force=True) as draft:
            save_file({"integers": integers.to("cpu", torch.int16).contiguous()}, draft)

    def _file(self, site: Site) -> Path:
        return self.folder / f"{site.name}.safetensors"


def digest(tensors: Iterable[Tensor]) -> str:
    """A fingerprint of tensors: their shapes, types and bytes."""
    found = hashlib.sha256()
    for tensor in tensors:
        plain = tensor.detach().cpu().contiguous()
        found.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
        found.update(plain.view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _read(file: Path) -> dict[str, Any]:
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SavedModelError(f"{file} cannot be read ({error}); give another work folder") from error
    return settings if isinstance(settings, dict) else {}


def _check_same(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    plain = json.loads(json.dumps(now))
    different = sorted(key for key in {*before, *plain} if before.get(key) != plain.get(key))
    if different:
        pairs = [(key, _short(before.get(key)), _short(plain.get(key))) for key in different]
        shown = ", ".join(f"{key} was {old} and is {new}" for key, old, new in pairs)
        raise OutputError(
            f"{folder} holds an interrupted run with other settings ({shown}); "
            "continue with the same settings or give another work folder"
        )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:56]} ..."
