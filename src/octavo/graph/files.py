"""Output that is complete or absent: written beside its place, then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from octavo.errors import OutputError


@contextmanager
def write_folder(folder: Path, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `folder` when the block succeeds and vanishes when it fails."""
    check_output(folder, force)
    draft = _draft(folder)
    try:
        yield draft
        _swap(draft, folder)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def write_file(file: Path, force: bool = False) -> Iterator[Path]:
    """Yield a path beside `file` whose content takes its place when the block succeeds."""
    check_output(file, force)
    draft = _draft(file)
    try:
        yield draft / file.name
        os.replace(draft / file.name, file)
    except OSError as error:
        raise OutputError(f"{file} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_output(path: Path, force: bool = False) -> None:
    """Refuse to overwrite, before any work is done."""
    if path.exists() and not force:
        raise OutputError(f"{path} exists already; choose another place or use --force to replace it")


def _draft(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        draft.chmod(0o755)
        return draft
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from error


def _swap(draft: Path, folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
        os.replace(folder, old / folder.name)
        os.replace(draft, folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        folder.unlink(missing_ok=True)
        os.replace(draft, folder)
