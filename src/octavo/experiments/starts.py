"""Fine-tuned starts: the parameters that quantization starts from, in a folder that can be carried about.

One safetensors file for each fine-tuning, and `starts.json`, which says which model and settings they are of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from octavo.errors import OutputError
from octavo.experiments.cell import Cell
from octavo.ledger import Ledger

FORMAT = 1
_ABOUT = "starts.json"


class Starts:
    """The fine-tuned parameters of one model with one set of settings.

    A folder of another version, model or settings is refused, and so is a file that was trained otherwise or
    on other data than its cell says: nothing would be comparable to what starts from it.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.folder = folder
        noun = "fine-tuned starts"
        self._ledger = Ledger(folder, {"octavo": FORMAT, **about}, name=_ABOUT, noun=noun)

    def __contains__(self, cell: Cell) -> bool:
        """Return whether a file of the cell can be read; `read` says whether it is the right one."""
        return self._ledger.get(cell.key) is not None

    def write(self, cell: Cell, parameters: Mapping[str, Tensor], result: Mapping[str, Any]) -> None:
        """Keep the parameters of a fine-tuning with its result: training, data and versions."""
        self._ledger.put(cell.key, {"cell": cell.to_dict(), **result}, parameters)

    def read(self, cell: Cell, data: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """Return parameters and result of a fine-tuning, None where it is missing; others are refused.

        `data` describes the data of the task as results do.
        """
        entry = self._ledger.get_tensors(cell.key)
        if entry is None:
            return None
        result, parameters = entry
        for name, wanted in (("cell", cell.to_dict()), ("data", data)):
            if different := _different(result.get(name), json.loads(json.dumps(wanted))):
                raise OutputError(
                    f"{self.folder} has a start for {cell.path} of {_OTHER[name]} ({different}); "
                    "give another folder of starts, or move that file away to train it anew"
                )
        return parameters, result


_OTHER = {"cell": "other settings", "data": "other data"}


def _different(before: Any, now: Any, name: str = "") -> str:
    """Return the first value that differs between two documents, named; empty if none does."""
    if isinstance(before, dict) and isinstance(now, dict):
        pairs = ((key, before.get(key), now.get(key)) for key in sorted({*before, *now}))
        return next((found for key, old, new in pairs if (found := _different(old, new, key))), "")
    return "" if before == now else f"{name}: {before}, here {now}"
