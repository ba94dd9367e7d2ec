"""Plain texts: one text a line, a tab between the two texts of a pair."""

from __future__ import annotations

from pathlib import Path

from octavo.errors import DataError
from octavo.tasks.lines import read_lines

Text = str | tuple[str, str]


def read_texts(path: str | Path) -> list[Text]:
    """Return the texts of a file: one text a line, a tab separates a pair, blank lines are skipped.

    White space around a text is dropped. The file is UTF-8, with or without a byte order mark.
    """
    texts = [
        _parse(line, f"{path}, line {number}")
        for number, line in enumerate(read_lines(path), start=1)
        if line.strip()
    ]
    if not texts:
        raise DataError(f"{path} holds no text; write one text a line, or two separated by a tab.")
    return texts


def _parse(line: str, where: str) -> Text:
    parts = [part.strip() for part in line.split("\t")]
    if len(parts) == 1:
        return parts[0]
    if len(parts) > 2:
        raise DataError(f"{where}: {len(parts) - 1} tabs; write one text, or two texts separated by one tab.")
    if not all(parts):
        raise DataError(
            f"{where}: one side of the tab is empty; write a text on both sides, or drop the tab."
        )
    return parts[0], parts[1]
