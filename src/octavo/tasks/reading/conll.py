"""Sentences with a tag for every word: CoNLL files, and rows that hold lists of words and tags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import DataError
from octavo.tasks.lines import read_lines
from octavo.tasks.reading.rows import Row, Source, columns_of, read_rows

ENDINGS = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".txt")
WORDS, TAGS = ("tokens", "words"), ("tags", "ner_tags", "labels", "pos_tags")
_DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True, kw_only=True)
class Tagged:
    """One sentence: its words, a tag for each, and where it stands."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    where: str


def read_tagged(source: Source, text: str = "", label: str = "") -> list[Tagged]:
    """Return the sentences of a CoNLL file, or of rows whose columns hold lists of words and tags."""
    if isinstance(source, str | Path) and Path(source).suffix.lower() in ENDINGS:
        return _read_conll(Path(source))
    rows = read_rows(source)
    columns = columns_of(rows)
    words = text or next((name for name in WORDS if name in columns), WORDS[0])
    tags = label or next((name for name in TAGS if name in columns), TAGS[0])
    return [_from_row(row, words, tags) for row in rows]


def _read_conll(path: Path) -> list[Tagged]:
    """Read a word a line, its tag in the last column, a blank line between sentences."""
    sentences: list[Tagged] = []
    pending: list[list[str]] = []
    width, start = 0, 0
    for number, line in enumerate([*read_lines(path), ""], start=1):
        fields = line.split()
        if not fields:
            if pending:
                sentences.append(_sentence(pending, f"{path}, line {start}"))
            pending = []
            continue
        if fields[0] == _DOCUMENT or (fields[0].startswith("#") and len(fields) != width):
            continue  # CoNLL-U's comments; a word that is a hash has as many columns as other words
        width = width or len(fields)
        if width < 2:
            raise DataError(f"{path}, line {number}: a word without a tag; write both on the line")
        if len(fields) != width:
            raise DataError(
                f"{path}, line {number}: {len(fields)} columns where the first word has {width}; "
                "write a word and its tag a line, and a blank line between sentences"
            )
        if not pending:
            start = number
        pending.append(fields)
    if not sentences:
        raise DataError(f"{path} holds no words; write a word and its tag a line")
    return sentences


def _sentence(lines: Sequence[Sequence[str]], where: str) -> Tagged:
    return Tagged(words=tuple(f[0] for f in lines), tags=tuple(f[-1] for f in lines), where=where)


def _from_row(row: Row, words: str, tags: str) -> Tagged:
    lists = []
    for column in (words, tags):
        value = row[column]
        if isinstance(value, str) or not (isinstance(value, Sequence) or hasattr(value, "tolist")):
            raise DataError(
                f"{row.where}: column {column!r} holds a {type(value).__name__} where a list is needed, "
                "one entry for every word"
            )
        lists.append(tuple(map(str, value)))
    if not lists[0]:
        raise DataError(f"{row.where}: column {words!r} holds no words; drop the row")
    if len(lists[0]) != len(lists[1]):
        raise DataError(
            f"{row.where}: {len(lists[0])} words in {words!r} and {len(lists[1])} tags in {tags!r}; "
            "give every word one tag"
        )
    return Tagged(words=lists[0], tags=lists[1], where=row.where)
