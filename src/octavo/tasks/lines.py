"""Reading a text file into lines, with errors that say where the file is wrong."""

from __future__ import annotations

import codecs
from pathlib import Path

from octavo.errors import DataError


def read_lines(path: str | Path) -> list[str]:
    """Return the lines of a UTF-8 file without their line ends; a byte order mark is accepted.

    Lines end at a line feed (a carriage return before it is dropped) and nowhere else: the other
    separators that str.splitlines knows occur inside real texts.
    """
    path = Path(path)
    lines = _decode(path, _read_bytes(path).removeprefix(codecs.BOM_UTF8)).split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a text file.")
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; give the path of a text file.") from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); check the path and its permissions."
        ) from error


def _decode(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        position = error.start - (before.rfind(b"\n") + 1) + 1
        raise DataError(
            f"{path}, line {line}: byte {position} of the line (0x{data[error.start]:02x}) is not UTF-8; "
            "save the file as UTF-8."
        ) from None
