"""The results folder of a grid: one JSON file for each cell, and the fine-tuned start of each task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from octavo.errors import OutputError, SpecError
from octavo.experiments.cell import Cell
from octavo.ledger import Ledger, read_json, write_json
from octavo.spec import recipe_from_dict, recipe_to_dict

FORMAT = 1
_ABOUT = "grid.json"


class Results:
    """Results of one model with one set of settings and data in one folder.

    A folder of another version, model or settings is refused; nothing is written before `begin` or `put`.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.folder = folder
        self._ledger = Ledger(folder, {"octavo": FORMAT, **about}, name=_ABOUT, noun="results")

    @property
    def about(self) -> dict[str, Any]:
        """What the folder holds results of."""
        return self._ledger.about

    def begin(self) -> None:
        """Make the folder known as one of results: checkpoints lie in it before the first result does."""
        if not (self.folder / _ABOUT).is_file():
            write_json(self.folder / _ABOUT, self.about)

    def get(self, cell: Cell) -> dict[str, Any] | None:
        """Return the result of a cell, or None if it is missing, damaged, or of other settings."""
        result = self._ledger.get(cell.key)
        wanted = json.loads(json.dumps(cell.to_dict()))
        return result if result is not None and _in_todays_words(result.get("cell")) == wanted else None

    def put(self, cell: Cell, result: Mapping[str, Any]) -> None:
        """Write the result of a cell."""
        self._ledger.put(cell.key, {"octavo": FORMAT, "cell": cell.to_dict(), **result})

    def check_data(self, task: str, data: Mapping[str, Any]) -> None:
        """Refuse data other than that of the results that the folder has of a task."""
        for path, result in self._ledger.results():
            if not path.startswith(f"{task}/") or "data" not in result:
                continue
            known = {split: about.get("sha256") for split, about in result["data"].items()}
            others = [split for split, about in data.items() if known.get(split) != about["sha256"]]
            if others:
                raise OutputError(
                    f"{self.folder} has results of {task} on other data: the files of {' and '.join(others)} "
                    f"were others for {path}.json; give another folder, or the same data"
                )
            return  # the others were compared to this one before they were run

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that have no result yet."""
        return [cell for cell in cells if self.get(cell) is None]

    def done_by_others(self, cells: Iterable[Cell]) -> dict[Cell, str]:
        """Return the cells that are experiments of other rows, with the keys of the results these have.

        Such as the best ranges of a task, which the search has measured. Of equal cells among the given ones
        the first is the other row's, whose result is still to come.
        """
        done: dict[str, str] = {}
        for key, result in self._ledger.results():
            if isinstance(result.get("cell"), dict):
                done.setdefault(_experiment(_in_todays_words(result["cell"])), key)
        keys = {cell: done.setdefault(_experiment(cell.to_dict()), cell.key) for cell in cells}
        return {cell: key for cell, key in keys.items() if key != cell.key}

    def take_over(self, cell: Cell, key: str) -> None:
        """Write the result of another row's equal experiment as a cell's, if it is there.

        Its command stays what was run.
        """
        result = self._ledger.get(key) or {}
        if _experiment(_in_todays_words(result.get("cell"))) == _experiment(cell.to_dict()):
            self.put(cell, {name: value for name, value in result.items() if name not in ("octavo", "cell")})

    def all(self) -> list[dict[str, Any]]:
        """Return every readable result, in the order of the files' names."""
        return [result for _, result in self._ledger.results() if isinstance(result.get("cell"), dict)]

    def start(self, task: str) -> str | None:
        """Return the path of the fine-tuned cell that quantization starts from, if it was chosen."""
        chosen = self._ledger.get(f"{task}/start")
        return None if chosen is None else str(chosen.get("cell"))

    def put_start(self, cell: Cell) -> None:
        """Write down the start of a task, so that it stays what it is when more results arrive."""
        self._ledger.put(f"{cell.task}/start", {"cell": cell.path})


def read_results(folder: Path) -> Results:
    """Return the results of a folder, whatever they are of."""
    about = read_json(folder / _ABOUT)
    if about is None:
        raise OutputError(f"{folder} is no results folder: {_ABOUT} is missing or damaged")
    return Results(folder, about)


def _experiment(cell: object) -> str:
    """Return what two cells have in common that differ by the name of their row alone."""
    return json.dumps(cell if not isinstance(cell, dict) else cell | {"row": ""}, sort_keys=True)


def _in_todays_words(cell: object) -> object:
    """Return a stored cell with its recipe as it is written today: results outlive the formats of recipes."""
    recipe = cell.get("recipe") if isinstance(cell, dict) else None
    if not isinstance(cell, dict) or recipe is None:
        return cell
    try:
        return cell | {"recipe": json.loads(json.dumps(recipe_to_dict(recipe_from_dict(recipe))))}
    except SpecError:
        return None
