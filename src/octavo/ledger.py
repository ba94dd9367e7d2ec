"""The ledger of a long run: finished results in a folder, so that the same call goes on where it was cut.

A folder belongs to one run: `about.json` (or another name) says what its results were made from, and a run
that differs is refused with what differs. Every result is one file that is complete or absent: JSON, or
safetensors with the JSON beside its tensors. Results that cannot be read count as missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import OutputError
from octavo.files import check_output, write_file

if TYPE_CHECKING:
    from torch import Tensor

_METADATA = "octavo"
_SHOWN = 60


class Ledger:
    """Finished results by key; without a folder they are kept in memory.

    Arguments:
        folder: where results are kept; it is made when the first result is put.
        about: what the results depend on, as plain data (use `fingerprint` for texts and tensors).
        name: the file that says so, and by which a folder of this kind is known.
        noun: what a folder of this kind holds, for messages: "a comparison".
        remedy: what to do about a folder of another run, for messages.
        force: start anew where a folder holds the results of another run; results of the same run stay.
    """

    def __init__(
        self,
        folder: Path | None,
        about: Mapping[str, Any],
        *,
        name: str = "about.json",
        noun: str = "an interrupted run",
        remedy: str = "give another folder",
        force: bool = False,
    ) -> None:
        self.folder = folder
        self.about = _plain(about)
        self._about_file = name
        self._noun = noun
        self._remedy = remedy
        self._kept: dict[str, tuple[dict[str, Any], dict[str, Tensor]]] = {}
        if folder is not None:
            self._check(folder, force)

    # -- results ---------------------------------------------------------------------------------------------

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the plain part of a result, or None where there is none that can be read."""
        if self.folder is None:
            return self._kept[key][0] if key in self._kept else None
        file = self._tensor_file(key)
        if file.is_file():
            found = _read_tensors(file, with_tensors=False)
            return None if found is None else found[0]
        return read_json(self._json_file(key))

    def get_tensors(self, key: str) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """Return a result with its tensors, or None where there is none that can be read."""
        if self.folder is None:
            return self._kept.get(key)
        file = self._tensor_file(key)
        if file.is_file():
            return _read_tensors(file)
        plain = read_json(self._json_file(key))
        return None if plain is None else (plain, {})

    def put(self, key: str, result: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None) -> None:
        """Keep a finished result in the place of an earlier one; its file is complete or absent."""
        plain = _plain(result)
        if self.folder is None:
            self._kept[key] = plain, dict(tensors or {})
            return
        self._begin()
        # the earlier result may have the other form, and must not be found in the place of this one
        if tensors:
            _write_tensors(self._tensor_file(key), plain, tensors)
            self._json_file(key).unlink(missing_ok=True)
        else:
            write_json(self._json_file(key), plain)
            self._tensor_file(key).unlink(missing_ok=True)

    def drop(self, key: str) -> None:
        """Forget a result."""
        self._kept.pop(key, None)
        if self.folder is not None:
            for file in (self._json_file(key), self._tensor_file(key)):
                file.unlink(missing_ok=True)

    def results(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield every readable JSON result with its key, in the order of names."""
        if self.folder is None:
            yield from ((key, kept) for key, (kept, _) in sorted(self._kept.items()))
            return
        for file in sorted(self.folder.rglob("*.json")):
            path = file.relative_to(self.folder)
            hidden = any(part.startswith(".") for part in path.parts)
            found = None if hidden or path.name == self._about_file else read_json(file)
            if found is not None:
                yield path.with_suffix("").as_posix(), found

    # -- the folder ------------------------------------------------------------------------------------------

    def _check(self, folder: Path, force: bool) -> None:
        """Refuse a folder of another run, or of other files, before any work is done; write nothing."""
        file = folder / self._about_file
        if file.is_file():
            before = read_json(file)
            different = self._different(before)
            if not different:
                return
            if not force:
                raise OutputError(f"{folder} holds {self._noun} {different}; {self._remedy}")
            self._clear(folder)
        elif folder.is_dir() and any(folder.iterdir()):
            if not force:
                raise OutputError(
                    f"{folder} holds other files (it has no {self._about_file}); give an empty or new folder"
                )
        elif not folder.is_dir():
            check_output(folder)

    def _different(self, before: dict[str, Any] | None) -> str:
        if before is None:
            return f"whose {self._about_file} cannot be read"
        keys = [key for key in sorted({*before, *self.about}) if before.get(key) != self.about.get(key)]
        if not keys:
            return ""
        shown = "; ".join(
            f"{key}: {_short(before.get(key))}, now {_short(self.about.get(key))}" for key in keys
        )
        return f"with another {', '.join(keys)} ({shown})"

    def _clear(self, folder: Path) -> None:
        """Remove the results of another run, and nothing else that lies in the folder."""
        for key, _ in list(self.results()):
            self.drop(key)
        for file in folder.rglob("*.safetensors"):
            if _read_tensors(file, with_tensors=False) is not None:
                file.unlink()
        (folder / self._about_file).unlink()

    def _begin(self) -> None:
        assert self.folder is not None
        file = self.folder / self._about_file
        if not file.is_file():
            write_json(file, self.about)

    def _json_file(self, key: str) -> Path:
        return self._file(key, ".json")

    def _tensor_file(self, key: str) -> Path:
        return self._file(key, ".safetensors")

    def _file(self, key: str, ending: str) -> Path:
        assert self.folder is not None
        parts = [_file_name(part) for part in key.split("/")]
        if len(parts) == 1 and parts[0] + ".json" == self._about_file:
            raise OutputError(f"{key!r} cannot name a result; {self._about_file} says what the run is about")
        return self.folder.joinpath(*parts[:-1], parts[-1] + ending)


def read_json(file: Path) -> dict[str, Any] | None:
    """Return a JSON object, or None where the file is missing, damaged or holds something else."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def write_json(file: Path, data: Mapping[str, Any]) -> None:
    """Write a JSON object in the place of an earlier one; the file is complete or absent."""
    with write_file(file, force=True) as draft:
        draft.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def fingerprint(*parts: Any) -> str:
    """Return a digest of plain data and tensors (shapes, types and bytes), in any nesting.

    >>> fingerprint(["a text"], {"bits": 8}) == fingerprint(["a text"], {"bits": 8})
    True
    """
    digest = hashlib.sha256()
    for piece in _pieces(parts):
        digest.update(piece)
    return digest.hexdigest()


def _pieces(value: Any) -> Iterable[bytes]:
    if hasattr(value, "detach"):
        plain = value.detach().cpu().contiguous()
        yield f"tensor {plain.dtype} {tuple(plain.shape)} ".encode()
        yield plain.reshape(-1).view(_bytes_type()).numpy().tobytes()
    elif isinstance(value, Mapping):
        yield f"mapping {len(value)} ".encode()
        for key in sorted(value):
            yield from _pieces(key)
            yield from _pieces(value[key])
    elif isinstance(value, list | tuple):
        yield f"list {len(value)} ".encode()
        for entry in value:
            yield from _pieces(entry)
    else:
        # with its length: two neighbours never read like one longer text
        text = json.dumps(value)
        yield f"{type(value).__name__} {len(text)} {text} ".encode()


def _bytes_type() -> Any:
    import torch

    return torch.uint8


def _plain(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return data as JSON reads it back, so that what was written compares equal."""
    plain: dict[str, Any] = json.loads(json.dumps(data))
    return plain


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."


def _file_name(part: str) -> str:
    plain = "".join(letter if letter.isalnum() or letter in "-_.+" else "_" for letter in part)
    if plain.strip(".") == "":
        raise OutputError(f"{part!r} cannot name a result; use letters and digits")
    # two keys that differ only in what a file name cannot hold stay two
    return plain if plain == part else f"{plain}-{hashlib.sha256(part.encode()).hexdigest()[:8]}"


def _write_tensors(file: Path, result: dict[str, Any], tensors: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with write_file(file, force=True) as draft:
        save_file(plain, draft, metadata={_METADATA: json.dumps(result)})


def _read_tensors(file: Path, with_tensors: bool = True) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            result = json.loads((opened.metadata() or {})[_METADATA])
            tensors = {key: opened.get_tensor(key) for key in opened.keys()} if with_tensors else {}
    except (SafetensorError, OSError, ValueError, KeyError):
        return None
    return (result, tensors) if isinstance(result, dict) else None
