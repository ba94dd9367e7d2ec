"""The folder of a comparison: what was asked, and one JSON file for each recipe and seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from octavo.errors import OutputError
from octavo.files import write_file

_ABOUT = "compare.json"


class ComparisonStore:
    """Finished measurements; without a folder nothing is kept.

    A folder that answers another question (model, texts, task) is refused; a file of another recipe with the
    same name, or a damaged one, counts as missing.
    """

    def __init__(self, folder: Path | None, about: dict[str, Any]) -> None:
        self._folder = folder
        if folder is None:
            return
        about, file = json.loads(json.dumps(about)), folder / _ABOUT
        if not file.is_file():
            if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                raise OutputError(f"{folder} holds other files; give a new folder, or one of a comparison")
            _write(file, about)
            return
        found = _read(file) or {}
        differing = [key for key in about if found.get(key) != about[key]]
        if differing:
            before, now = found.get(differing[0]), about[differing[0]]
            raise OutputError(
                f"{folder} holds a comparison with another {', '.join(differing)} "
                f"({json.dumps(before)}, now {json.dumps(now)}); give another folder"
            )

    def get(self, name: str, seed: int, recipe: dict[str, Any]) -> dict[str, Any] | None:
        """What was measured, or None."""
        found = _read(self._file(name, seed)) if self._folder is not None else None
        if found is None or found.get("recipe") != json.loads(json.dumps(recipe)):
            return None
        measured: dict[str, Any] | None = found.get("measured")
        return measured

    def put(self, name: str, seed: int, recipe: dict[str, Any], measured: dict[str, Any]) -> None:
        """Write what was measured; the file is complete or absent."""
        if self._folder is not None:
            _write(self._file(name, seed), {"recipe": recipe, "seed": seed, "measured": measured})

    def _file(self, name: str, seed: int) -> Path:
        assert self._folder is not None
        plain = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
        return self._folder / f"{plain}-seed-{seed}.json"


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write(file: Path, data: dict[str, Any]) -> None:
    with write_file(file, force=True) as draft:
        draft.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
