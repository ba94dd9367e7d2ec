"""The ledger of a run: finished measurements in a file, so that an interrupted run can continue."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.errors import OctavoWarning, OutputError
from octavo.files import write_file
from octavo.graph import Encoder, Text
from octavo.versions import versions

LEDGER = "progress.json"


class Ledger:
    """Results by key, written after every one; without a folder they are kept in memory only."""

    def __init__(self, folder: Path | None, fingerprint: str, force: bool = False) -> None:
        self._file = None if folder is None else folder / LEDGER
        self._fingerprint = fingerprint
        self._results: dict[str, Any] = {}
        if folder is not None:
            _prepare(folder, force)
            self._results = self._read(force)
            self._write()

    def __contains__(self, key: str) -> bool:
        return key in self._results

    def __getitem__(self, key: str) -> Any:
        return self._results[key]

    def put(self, key: str, result: Any) -> None:
        """Keep a finished result."""
        self._results[key] = result
        self._write()

    def _read(self, force: bool) -> dict[str, Any]:
        assert self._file is not None
        if not self._file.is_file():
            return {}
        try:
            document = json.loads(self._file.read_text(encoding="utf-8"))
            known, results = document["fingerprint"], dict(document["results"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            warnings.warn(
                f"{self._file} cannot be read ({error}); the run starts anew", OctavoWarning, stacklevel=4
            )
            return {}
        if known == self._fingerprint:
            return results
        if not force:
            raise OutputError(
                f"{self._file.parent} holds the diagnosis of another model, other texts or other settings; "
                "choose another folder or use --force to replace it"
            )
        return {}

    def _write(self) -> None:
        if self._file is None:
            return
        document = {"octavo": 1, "fingerprint": self._fingerprint, "results": self._results}
        with write_file(self._file, force=True) as draft:
            draft.write_text(json.dumps(document), encoding="utf-8")


def _prepare(folder: Path, force: bool) -> None:
    """Make the folder, and refuse one that holds something else or cannot be written."""
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; give a folder for the report")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        foreign = any(folder.iterdir()) and not (folder / LEDGER).is_file()
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}") from error
    if foreign and not force:
        raise OutputError(
            f"{folder} holds other files; choose an empty folder or use --force to write among them"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{folder} cannot be written: it is read-only for you; choose another folder")


def fingerprint(encoder: Encoder, texts: Sequence[Text], settings: dict[str, Any]) -> str:
    """A digest of everything results depend on: weights, texts, settings and versions."""
    digest = hashlib.sha256(
        json.dumps([encoder.name, list(texts), settings, versions()], sort_keys=True).encode()
    )
    for name, parameter in encoder.graph.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
