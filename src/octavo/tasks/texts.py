"""Plain texts: one text a line, a tab between the two texts of a pair; tables are refused."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path

from octavo.errors import DataError
from octavo.tasks.lines import read_lines
from octavo.tasks.reading.rows import read_rows

Text = str | tuple[str, str]

_COLUMN_NAMES = frozenset(
    "id idx index text texts sentence sentences sentence1 sentence2 text1 text2 question question1 question2 "
    "answer query queries document documents doc passage passages context premise hypothesis title "
    "body anchor positive negative label labels score scores class category target gold_label similarity "
    "rating".split()
)
_TABLE = re.compile(r"(?P<file>.+\.(csv|tsv|jsonl|json|parquet)):(?P<columns>[^/\\]+)", re.IGNORECASE)
_ENOUGH_LINES = 10
"""A column of a few different words among at least so many lines holds labels."""


def read_texts(path: str | Path) -> list[Text]:
    """Return the texts of a file: one text a line, a tab separates a pair, blank lines are skipped.

    White space around a text is dropped. The file is UTF-8, with or without a byte order mark. Of a table
    (.csv, .tsv, .jsonl, .json, .parquet) name the column, `train.csv:review`, or the two of a pair,
    `train.csv:question,answer`. What looks like a table and is not given as one is an error that says why.
    """
    table = _TABLE.fullmatch(str(path))
    if table is not None:
        return _read_columns(table["file"], [name.strip() for name in table["columns"].split(",")])
    lines = read_lines(path)
    _refuse_tables(Path(path), [line for line in lines if line.strip()])
    texts = [
        _parse(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1) if line.strip()
    ]
    if not texts:
        raise DataError(f"{path} holds no text; write one text a line, or two separated by a tab.")
    return texts


def _read_columns(file: str, columns: Sequence[str]) -> list[Text]:
    if len(columns) > 2:
        raise DataError(f"{file}: {len(columns)} columns; name one of texts, or the two of a pair.")
    texts = [[row.text(column) for column in columns] for row in read_rows(file)]
    return [row[0] if len(row) == 1 else (row[0], row[1]) for row in texts]


def describe_texts(texts: Sequence[Text]) -> str:
    """Return what was understood: "300 texts", "12 pairs" or "300 texts and 12 pairs"."""
    pairs = sum(not isinstance(text, str) for text in texts)
    counts = ((len(texts) - pairs, "text"), (pairs, "pair"))
    parts = [f"{count} {noun}{'s' if count != 1 else ''}" for count, noun in counts if count]
    return " and ".join(parts) or "no texts"


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


# -- tables --------------------------------------------------------------------------------------------------


def _refuse_tables(path: Path, lines: list[str]) -> None:
    reason = _table_of_commas(path, lines) or _table_of_objects(lines) or _table_of_tabs(lines)
    if reason:
        raise DataError(
            f"{path} looks like a table: {reason}. Texts are read one a line, so write the column of texts, "
            "without a header, into a file of its own; of pairs, both columns with one tab between them. "
            f"Or name the column: {path.stem}.csv:COLUMN (.tsv, .jsonl and .parquet as well)."
        )


def _table_of_commas(path: Path, lines: list[str]) -> str | None:
    try:
        rows = list(csv.reader(lines))
    except csv.Error:  # a text longer than any cell of a table
        return None
    if not rows:
        return None
    if path.suffix.lower() == ".csv":
        return f"its name ends in .csv, and its first line holds {_named(rows[0])}"
    columns = len(rows[0])
    if columns < 2 or len(rows) < 2 or any(len(row) != columns for row in rows):
        return None
    if _is_header(rows[0]):
        return f"line 1 is a header, {_named(rows[0])}"
    return _odd_column(rows, "commas")


def _table_of_objects(lines: list[str]) -> str | None:
    if not lines or not lines[0].lstrip().startswith(("{", "[")):
        return None
    try:
        first = json.loads(lines[0])
    except ValueError:
        return None
    keys = ", ".join(map(str, first)) if isinstance(first, dict) else "a list"
    return f"line 1 is JSON ({keys})"


def _table_of_tabs(lines: list[str]) -> str | None:
    rows = [line.split("\t") for line in lines]
    if len(rows) < 2 or any(len(row) < 2 for row in rows):
        return None
    if _is_header(rows[0]):
        return f"line 1 is a header, {_named(rows[0])}"
    return _odd_column(rows, "tabs") if all(len(row) == len(rows[0]) for row in rows) else None


def _is_header(row: Sequence[str]) -> bool:
    names = [cell.strip().lower() for cell in row]
    return len(names) > 1 and any(n in _COLUMN_NAMES for n in names) and not any(" " in n for n in names)


def _odd_column(rows: list[list[str]], separator: str) -> str | None:
    """Why a column holds no texts, None where all may."""
    for number, cells in enumerate(zip(*rows, strict=True), start=1):
        values = [cell.strip() for cell in cells]
        if all(map(_is_number, values)):
            return f"of the columns between {separator}, number {number} holds numbers"
        few = len(set(values)) <= max(2, len(values) // 10)
        if few and len(values) >= _ENOUGH_LINES and not any(" " in value for value in values):
            known = ", ".join(sorted(set(values))[:3])
            return f"of the columns between {separator}, number {number} holds labels ({known})"
    return None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _named(row: Sequence[str]) -> str:
    return ", ".join(repr(cell.strip()[:40]) for cell in row[:5])
