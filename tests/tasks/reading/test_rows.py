from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas
import pytest

from octavo.errors import DataError, MissingExtraError
from octavo.tasks.reading.rows import read_rows

ROWS = [{"text": "good, really", "stars": "5"}, {"text": 'said "no"\ntwice', "stars": "1"}]


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_text(text, encoding=encoding, newline="")
    return path


def values(source: Any) -> list[dict[str, Any]]:
    return [dict(row.values) for row in read_rows(source)]


def test_a_csv_as_a_spreadsheet_writes_it(tmp_path: Path) -> None:
    text = 'text,stars\r\n"good, really",5\r\n\r\n"said ""no""\r\ntwice",1\r\n'
    assert values(write(tmp_path / "a.csv", text)) == ROWS
    assert values(write(tmp_path / "bom.csv", text, "utf-8-sig")) == ROWS


def test_a_csv_with_semicolons(tmp_path: Path) -> None:
    assert values(write(tmp_path / "a.csv", "text;stars\nfine;3,5\n")) == [{"text": "fine", "stars": "3,5"}]


def test_a_tsv_takes_quotes_as_they_are(tmp_path: Path) -> None:
    assert values(write(tmp_path / "a.tsv", 'text\tstars\n"half\t5\n')) == [{"text": '"half', "stars": "5"}]


def test_json_lines_and_json(tmp_path: Path) -> None:
    assert values(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, ROWS)) + "\n\n")) == ROWS
    assert values(write(tmp_path / "a.json", json.dumps(ROWS))) == ROWS


def test_a_long_cell_is_read(tmp_path: Path) -> None:
    assert values(write(tmp_path / "a.csv", f"text\n{'x' * 200_000}\n"))[0]["text"] == "x" * 200_000


def test_rows_in_memory() -> None:
    class Dataset:
        """Like a datasets.Dataset: it iterates over its rows."""

        def __iter__(self) -> Any:
            return iter(ROWS)

    assert values(ROWS) == values(tuple(ROWS)) == values(pandas.DataFrame(ROWS)) == values(Dataset()) == ROWS


def test_parquet_where_pyarrow_is_there(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert values(tmp_path / "a.parquet") == ROWS
    with pytest.raises(DataError, match=r"b\.parquet cannot be read as Parquet"):
        read_rows(write(tmp_path / "b.parquet", "no"))


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"a\.parquet, a Parquet file, needs the extra 'hub'"):
        read_rows(write(tmp_path / "a.parquet", "any"))
    with pytest.raises(DataError, match=r"none\.parquet does not exist"):
        read_rows(tmp_path / "none.parquet")


def test_a_missing_column_names_those_there_are() -> None:
    row = read_rows([{"review": "a", "stars": 1}])[0]
    with pytest.raises(
        DataError, match="row 1: no column 'reviews'; there are review, stars; did you mean 'review'"
    ):
        row["reviews"]


@pytest.mark.parametrize("text", ["", "  ", float("nan")], ids=["empty", "blank", "missing in a frame"])
def test_an_empty_text_is_an_error(text: Any) -> None:
    with pytest.raises(DataError, match=r"row 1: the text in column 'text' is empty; fill it in, or drop"):
        read_rows([{"text": text}])[0].text("text")
    with pytest.raises(DataError, match="row 1: column 'text' holds nothing where a text is needed"):
        read_rows([{"text": None}])[0].text("text")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", b"text,label\ncaf\xe9,1\n", r"a\.csv, line 2: byte 4 of the line \(0xe9\) is not UTF-8"),
        ("a.csv", b'text,label\na,1\n"b,1\nc,2\n', r"a\.csv, line 3: the quotes of the row that begins here"),
        ("a.csv", b'text,label\n"b" x,1\n', r"a\.csv, line 2: the quotes of the row that begins here"),
        ("a.csv", b"text,label\ra,1\r", r"a\.csv, line 1: a carriage return stands inside the line"),
        ("a.csv", b"text,label\na,b,1\n", r"a\.csv, line 2: 3 cells where the header has 2 \(text, label\)"),
        ("a.csv", b"text,label\na\n", r"a\.csv, line 2: 1 cell where the header has 2 .*needs its separator"),
        ("a.csv", b"text,text\na,b\n", r"a\.csv, line 1: two columns are called 'text'"),
        ("a.csv", b"text,label\n", r"a\.csv holds no rows"),
        ("a.csv", b"", r"a\.csv holds no rows"),
        ("a.jsonl", b'{"a": 1}\n{"a": \n', r"a\.jsonl, line 2: not valid JSON"),
        ("a.jsonl", b'{"a": ' + b"1" * 5000 + b"}", r"a\.jsonl, line 1: a number has too many digits"),
        ("a.jsonl", b"[1]\n", r"a\.jsonl, line 1: a list where an object with columns is needed"),
        ("a.jsonl", b"null\n", r"a\.jsonl, line 1: null where an object with columns is needed"),
        ("a.json", b'{"a": 1}', r"a\.json holds no list of rows"),
        ("a.json", b"[\n{]", r"a\.json, line 2: not valid JSON"),
        ("a.xlsx", b"", r"a\.xlsx: a table's name ends in \.csv, \.tsv"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 9 else "",
)
def test_a_broken_file_says_where(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=expected):
        read_rows(tmp_path / name)


def test_what_is_no_table() -> None:
    with pytest.raises(DataError, match="rows are a dict; give a file, a list of dictionaries"):
        read_rows({"text": ["a"]})
    with pytest.raises(DataError, match="row 1 is a str; give a dictionary"):
        read_rows(["a"])
    with pytest.raises(DataError, match="the list of rows holds no rows"):
        read_rows([])
