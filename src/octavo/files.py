"""Output that is complete or absent: written beside its place, then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from octavo.errors import OutputError

_FAILURES = (OSError, SafetensorError)  # the latter hides a full disk


@contextmanager
def write_folder(folder: Path, force: bool = False, marker: str | None = None) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `folder` if the block succeeds and vanishes if it fails.

    Arguments:
        force, marker: as in `check_output`.
    """
    check_output(folder, force, marker)
    draft = _draft(folder)
    try:
        yield draft
        _swap(draft, folder)
    except _FAILURES as error:
        raise OutputError(f"{folder} cannot be written: {_reason(error)}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def write_file(file: Path, force: bool = False) -> Iterator[Path]:
    """Yield a path beside `file` whose content takes its place when the block succeeds."""
    check_output(file, force)
    draft = _draft(file)
    try:
        yield draft / file.name
        (draft / file.name).replace(file)
    except _FAILURES as error:
        raise OutputError(f"{file} cannot be written: {_reason(error)}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_output(path: Path, force: bool = False, marker: str | None = None) -> None:
    """Refuse to overwrite, and places where nothing can be written, before any work is done.

    Arguments:
        force: replace what is there.
        marker: a file that every folder of this kind holds; `force` spares folders with other content.
    """
    try:
        if os.path.lexists(path):
            _check_replaceable(path, force, marker)
        _check_writable(path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from error


def _check_replaceable(path: Path, force: bool, marker: str | None) -> None:
    if not force:
        raise OutputError(f"{path} exists already; choose another place or use --force to replace it")
    if marker is None:
        return
    if path.is_file():
        raise OutputError(
            f"{path} is a file, which --force spares: a folder goes there; choose another place"
        )
    if path.is_dir() and any(path.iterdir()) and not (path / marker).is_file():
        raise OutputError(
            f"{path} holds other files (it has no {marker}), which --force spares; choose another place"
        )


def _check_writable(path: Path) -> None:
    """Look at the nearest folder above that exists: the missing ones are made when something is written."""
    above = next((folder for folder in path.absolute().parents if folder.exists()), path)
    if not above.is_dir():
        raise OutputError(f"{path} cannot be written: {above} is a file, not a folder; choose another place")
    if not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(f"{path} cannot be written: {above} is read-only for you; choose another place")


def _draft(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        draft.chmod(0o755)
        return draft
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _swap(draft: Path, folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
        folder.replace(old / folder.name)
        try:
            draft.replace(folder)
        except OSError:
            (old / folder.name).replace(folder)
            raise
        finally:
            shutil.rmtree(old, ignore_errors=True)
    else:
        folder.unlink(missing_ok=True)
        draft.replace(folder)
