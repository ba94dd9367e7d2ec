"""Rows with named columns, from CSV, TSV, JSON and Parquet files, lists, frames and data sets."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo.errors import DataError, MissingExtraError, did_you_mean
from octavo.tasks.lines import read_lines

Source = str | Path | Sequence[Mapping[str, Any]] | Any
"""A file, a list of dictionaries, a pandas frame or a `datasets.Dataset`."""

_LONGEST_CELL = 2**31 - 1
_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row by column; `where` says which it is, for messages: "reviews.csv, line 7"."""

    values: Mapping[str, Any]
    where: str

    def __getitem__(self, column: str) -> Any:
        """Return what stands in a column; an unknown one is an error that names those there are."""
        if column not in self.values:
            names = list(map(str, self.values))
            listed = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
            hint = did_you_mean(column, names) or ""
            raise DataError(f"{self.where}: no column {column!r}; there are {listed or 'none'}{hint}")
        return self.values[column]

    def text(self, column: str) -> str:
        """Return the text of a column; one that is empty or no text is an error."""
        value = self[column]
        if not isinstance(value, str) and not isinstance(value, int | float):
            held = "nothing" if value is None else f"a {type(value).__name__}"
            raise DataError(f"{self.where}: column {column!r} holds {held} where a text is needed")
        if value != value or not str(value).strip():  # NaN is how frames write a missing text
            raise DataError(
                f"{self.where}: the text in column {column!r} is empty; fill it in, or drop the row"
            )
        return str(value).strip()


def read_rows(source: Source) -> list[Row]:
    """Return the rows of a file or of a table in memory; there is at least one."""
    rows = _from_file(Path(source)) if isinstance(source, str | Path) else list(_from_memory(source))
    if not rows:
        raise DataError(f"{describe_source(source)} holds no rows; give at least one")
    return rows


def describe_source(source: Source) -> str:
    """Return the file's path, or "the list of rows" for what is in memory."""
    return str(source) if isinstance(source, str | Path) else f"the {type(source).__name__} of rows"


def columns_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the columns of the first row."""
    return tuple(map(str, rows[0].values))


# -- files ---------------------------------------------------------------------------------------------------


def _from_file(path: Path) -> list[Row]:
    ending = path.suffix.lower()
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a file that ends in {', '.join(_READERS)}")
    if ending not in _READERS:
        raise DataError(
            f"{path}: a table's name ends in {', '.join(_READERS)}, not in {ending or 'nothing'}; "
            "rename it for what it holds"
        )
    return list(_READERS[ending](path))


def _commas(path: Path) -> Iterator[Row]:
    lines = read_lines(path)
    header = lines[0] if lines else ""
    # spreadsheets write semicolons where the comma is a decimal point
    mark = ";" if header.count(";") > header.count(",") else ","
    yield from _cells(path, lines, delimiter=mark)


def _tabs(path: Path) -> Iterator[Row]:
    yield from _cells(path, read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)


def _cells(path: Path, lines: list[str], **layout: Any) -> Iterator[Row]:
    """Yield the rows below a header; a cell in quotes may hold line breaks."""
    csv.field_size_limit(_LONGEST_CELL)
    reader = csv.reader((f"{line}\n" for line in lines), strict=True, **layout)
    header: list[str] = []
    first = 1
    try:
        for cells in reader:
            where = f"{path}, line {first}"
            first = reader.line_num + 1
            if not cells:
                continue
            if not header:
                header = _header(cells, where)
            elif len(cells) != len(header):
                raise DataError(f"{where}: {_uneven(cells, header)}")
            else:
                yield Row(values=dict(zip(header, cells, strict=True)), where=where)
    except csv.Error as error:
        if any("\r" in line for line in lines[first - 1 : reader.line_num]):
            raise DataError(
                f"{path}, line {first}: a carriage return stands inside the line; end lines with a line feed"
            ) from None
        raise DataError(
            f"{path}, line {first}: the quotes of the row that begins here are broken ({error}); "
            'close them, and write a quote inside a cell twice ("")'
        ) from None


def _header(cells: Sequence[str], where: str) -> list[str]:
    names = [cell.strip() for cell in cells]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DataError(f"{where}: two columns are called {twice!r}; rename one")
    return names


def _uneven(cells: Sequence[str], header: Sequence[str]) -> str:
    counted = f"{len(cells)} cell{'s' * (len(cells) > 1)} where the header has {len(header)}"
    more = len(cells) > len(header)
    remedy = (
        "put a cell that holds a separator in quotes" if more else "an empty cell needs its separator too"
    )
    return f"{counted} ({', '.join(header[:_SHOWN])}); {remedy}"


def _json_lines(path: Path) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        if line.strip():
            yield Row(values=_object(_parsed(line, where), where), where=where)


def _json(path: Path) -> Iterator[Row]:
    document = read_json(path)
    if not isinstance(document, list):
        raise DataError(f"{path} holds no list of rows; write [{{...}}, {{...}}], or a row a line as .jsonl")
    for number, entry in enumerate(document, start=1):
        where = f"{path}, entry {number}"
        yield Row(values=_object(entry, where), where=where)


def read_json(path: Path) -> Any:
    """Return what a JSON file holds; one that is broken is an error that names the line."""
    return _parsed("\n".join(read_lines(path)), str(path))


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if "\n" in text else ""
        raise DataError(
            f"{where}{line}: not valid JSON ({error.msg}, character {error.colno}); mend or drop it"
        ) from None
    except RecursionError:
        raise DataError(f"{where}: the JSON is nested too deeply") from None
    except ValueError:  # Python reads no whole number of more than some thousand digits
        raise DataError(f"{where}: a number has too many digits; write it as text, in quotes") from None


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        held = "null" if value is None else f"a {type(value).__name__}"
        raise DataError(f"{where}: {held} where an object with columns is needed")
    return value


def _parquet(path: Path) -> Iterator[Row]:
    if not path.exists():  # said first: the extra would be installed for nothing
        raise DataError(f"{path} does not exist; give the path of a Parquet file")
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("hub", f"Reading {path}, a Parquet file,") from error
    try:
        table = parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read as Parquet ({error}); check the file") from error
    for number, values in enumerate(table.to_pylist(), start=1):
        yield Row(values=values, where=f"{path}, row {number}")


_READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    ".csv": _commas,
    ".tsv": _tabs,
    ".jsonl": _json_lines,
    ".json": _json,
    ".parquet": _parquet,
}


# -- memory --------------------------------------------------------------------------------------------------


def _from_memory(source: Any) -> Iterator[Row]:
    # a pandas frame iterates over its columns; a datasets.Dataset and a list over their rows
    entries = source.to_dict("records") if hasattr(source, "iterrows") else source
    if isinstance(entries, Mapping) or not hasattr(entries, "__iter__"):
        raise DataError(
            f"rows are a {type(source).__name__}; give a file, a list of dictionaries, a pandas frame or a "
            "datasets.Dataset"
        )
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, Mapping):
            raise DataError(f"row {number} is a {type(entry).__name__}; give a dictionary by column")
        yield Row(values=entry, where=f"row {number}")
