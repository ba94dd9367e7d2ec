"""A collection to search, as BEIR lays it out: corpus.jsonl, queries.jsonl, qrels/test.tsv."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import DataError, did_you_mean
from octavo.tasks.lines import read_lines
from octavo.tasks.reading.rows import Row, read_rows

CORPUS, QUERIES, JUDGEMENTS = "corpus.jsonl", "queries.jsonl", "qrels"
_COLUMNS = ("query-id", "corpus-id", "score")


@dataclass(frozen=True, kw_only=True, eq=False)
class Collection:
    """Documents and queries by their ids, and how relevant which document is to which query.

    relevant holds, for every query that was judged, the documents with a score above zero.
    """

    documents: Mapping[str, str]
    queries: Mapping[str, str]
    relevant: Mapping[str, Mapping[str, int]]


def read_collection(folder: str | Path, split: str = "test") -> Collection:
    """Return a collection in BEIR's layout with the judgements of one split."""
    folder = Path(folder)
    if not is_collection(folder):
        raise DataError(
            f"{folder} is no folder in BEIR's layout; it needs {CORPUS}, {QUERIES} and "
            f"{JUDGEMENTS}/{split}.tsv"
        )
    documents = _by_id(folder / CORPUS, _document)
    queries = _by_id(folder / QUERIES, lambda row: row.text("text"))
    relevant = _judgements(folder, split, documents, queries)
    return Collection(
        documents=documents,
        queries={name: queries[name] for name in relevant},
        relevant=relevant,
    )


def is_collection(folder: Path) -> bool:
    """Return whether a folder is laid out as BEIR's."""
    return (folder / CORPUS).is_file() and (folder / QUERIES).is_file()


def _by_id(path: Path, text: Callable[[Row], str]) -> dict[str, str]:
    """Return the texts of a file by their ids; an id that stands there twice is an error."""
    found: dict[str, str] = {}
    places: dict[str, str] = {}
    for row in read_rows(path):
        name = str(row["_id"])
        if name in found:
            raise DataError(
                f"{row.where}: the id {name!r} is that of {places[name]} already; give each its own, or "
                "drop one"
            )
        found[name], places[name] = text(row), row.where.rpartition(", ")[2]
    return found


def _document(row: Row) -> str:
    """Return title and text as one text, as BEIR's models read it; one of the two may be empty."""
    title = str(row.values.get("title") or "").strip()
    text = row["text"]
    if title and (text is None or text == ""):
        return title
    return f"{title} {row.text('text')}" if title else row.text("text")


def _judgements(
    folder: Path, split: str, documents: Mapping[str, str], queries: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    path = folder / JUDGEMENTS / f"{split}.tsv"
    if not path.is_file():
        there = sorted(file.stem for file in path.parent.glob("*.tsv"))
        known = f"; there are {', '.join(there)}" if there else ""
        raise DataError(f"{path} does not exist{known}{did_you_mean(split, there)}")
    first = next(iter(read_lines(path)), "")
    if not set(_COLUMNS) <= {name.strip() for name in first.split("\t")}:
        raise DataError(
            f"{path}, line 1: {first!r} does not name the columns; "
            f"write {', '.join(_COLUMNS)} with tabs between"
        )
    relevant: dict[str, dict[str, int]] = {}
    for row in read_rows(path):
        query, document, score = (str(row[column]) for column in _COLUMNS)
        if query not in queries:
            raise DataError(f"{row.where}: query {query!r} is not in {QUERIES}; add it, or drop the line")
        if document not in documents:
            raise DataError(
                f"{row.where}: document {document!r} is not in {CORPUS}; add it, or drop the line"
            )
        if not score.lstrip("-").isdecimal():
            raise DataError(f"{row.where}: score {score!r} is no whole number; 0 is irrelevant, 1 relevant")
        if int(score) > 0:
            relevant.setdefault(query, {})[document] = int(score)
    if not relevant:
        raise DataError(f"{path} names no relevant document; at least one score must be above 0")
    return relevant
