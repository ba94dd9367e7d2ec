"""The results folder: one JSON file for each cell, complete or absent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from octavo.errors import OutputError
from octavo.experiments.cell import Cell
from octavo.files import write_file

FORMAT = 1
_ABOUT = "grid.json"


class Store:
    """Results of one model with one set of settings and data in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, about: dict[str, Any]) -> None:
        """Start or continue a folder."""
        self.check(about)
        if not (self.folder / _ABOUT).is_file():
            self._write(self.folder / _ABOUT, {"octavo": FORMAT, **about})

    def check(self, about: dict[str, Any]) -> None:
        """Refuse a folder of another version, model, data or settings; write nothing."""
        file = self.folder / _ABOUT
        about = {"octavo": FORMAT, **json.loads(json.dumps(about))}
        if not file.is_file():
            if self.folder.is_dir() and any(self.folder.iterdir()):
                raise OutputError(
                    f"{self.folder} holds other files (there is no {_ABOUT}); choose another folder"
                )
            return
        found = _read(file)
        if found is None:
            raise OutputError(f"{file} cannot be read; choose another folder")
        differing = [key for key in about if found.get(key) != about[key]]
        if differing:
            raise OutputError(
                f"{self.folder} holds results with another {', '.join(differing)} "
                f"({_short(found.get(differing[0]))}, now {_short(about[differing[0]])}); "
                "choose another folder"
            )

    def about(self) -> dict[str, Any]:
        """Return what the folder holds results of."""
        found = _read(self.folder / _ABOUT)
        if found is None:
            raise OutputError(f"{self.folder} is no results folder: {_ABOUT} is missing or damaged")
        return found

    def get(self, cell: Cell) -> dict[str, Any] | None:
        """Return the result of a cell, or None if it is missing, damaged, or of other settings."""
        result = _read(self.folder / cell.path)
        if result is None or result.get("cell") != json.loads(json.dumps(cell.to_dict())):
            return None
        return result

    def put(self, cell: Cell, result: dict[str, Any]) -> None:
        """Write the result of a cell."""
        self._write(self.folder / cell.path, {"octavo": FORMAT, "cell": cell.to_dict(), **result})

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that have no result yet."""
        return [cell for cell in cells if self.get(cell) is None]

    def all(self) -> list[dict[str, Any]]:
        """Return every readable result, in the order of the files' names."""
        files = sorted(self.folder.glob("*/*/*.json"))
        return [result for result in map(_read, files) if result is not None and "cell" in result]

    def _write(self, file: Path, data: dict[str, Any]) -> None:
        with write_file(file, force=True) as draft:
            draft.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _read(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
