"""What kind of task some data is, by its layout, its columns and the model's head."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from octavo.errors import DataError
from octavo.tasks.kinds import (
    Classification,
    MultiLabel,
    QuestionAnswering,
    Regression,
    Reranking,
    Retrieval,
    Similarity,
    Task,
    TokenClassification,
)
from octavo.tasks.kinds.reranking import POSITIVE
from octavo.tasks.reading import conll
from octavo.tasks.reading.beir import is_collection
from octavo.tasks.reading.rows import Row, Source, columns_of, describe_source, read_json, read_rows


def guess_kind(
    data: Source,
    *,
    text: Sequence[str] = (),
    label: Sequence[str] = (),
    head: str | None = None,
) -> type[Task]:
    """Return the kind that data most likely is; what cannot be told is an error that lists the kinds.

    Arguments:
        text, label: the columns of texts and of labels, where a table was described.
        head: the model's head, which tells similarity from regression; None where a new one is made.
    """
    layout = _by_layout(data)
    if layout is not None:
        return layout
    rows = read_rows(data)
    columns = set(columns_of(rows))
    if label:
        embeds = len(text) > 1 and head == "encoder"
        return _by_labels([_values(rows, column) for column in label], embeds)
    if columns >= {"question", "context", "answers"}:
        return QuestionAnswering
    if columns & set(conll.WORDS) and columns & set(conll.TAGS):
        return TokenClassification
    if POSITIVE in columns:
        return Reranking
    raise DataError(
        f"{describe_source(data)} has the columns {', '.join(columns_of(rows))}; say which hold texts and "
        "labels (--text COLUMN --label COLUMN)"
    )


def _by_layout(data: Source) -> type[Task] | None:
    if not isinstance(data, str | Path):
        return None
    path = Path(data)
    if path.is_dir():
        if is_collection(path):
            return Retrieval
        raise DataError(
            f"{path} is a folder, and not one in BEIR's layout (corpus.jsonl, queries.jsonl, qrels); "
            "of GLUE's folder name the task as well, such as --task glue/rte"
        )
    if path.suffix.lower() in conll.ENDINGS and path.suffix.lower() != ".txt":
        return TokenClassification
    if path.suffix.lower() == ".json":
        document: Any = read_json(path)
        if isinstance(document, dict) and "data" in document:
            return QuestionAnswering
    return None


def _values(rows: Sequence[Row], column: str) -> list[Any]:
    return [row[column] for row in rows]


def _by_labels(columns: Sequence[Sequence[Any]], embeds: bool) -> type[Task]:
    values = columns[0]
    if len(columns) > 1 or isinstance(values[0], list | tuple):
        return MultiLabel
    numbers = [_number(value) for value in values]
    if None in numbers:
        return Classification
    if embeds:
        return Similarity
    return Classification if all(float(n or 0).is_integer() for n in numbers) else Regression


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
