from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import DataError
from octavo.tasks import (
    Classification,
    MultiLabel,
    QuestionAnswering,
    Regression,
    Reranking,
    Retrieval,
    Similarity,
    TokenClassification,
)
from octavo.tasks.guessing import guess_kind
from tests.tasks.reading.test_beir import write

PAIR = ("a", "b")


@pytest.mark.parametrize(
    ("labels", "options", "expected"),
    [
        (["good", "bad"], {}, Classification),
        (["1", "5"], {}, Classification),
        ([1, 5], {"head": "encoder"}, Classification),
        ([0.5, 1], {}, Regression),
        ([0.5, 1], {"text": PAIR}, Regression),
        ([0.5, 1], {"text": PAIR, "head": "encoder"}, Similarity),
        ([1, 0], {"text": PAIR, "head": "encoder"}, Similarity),
        ([["x"], ["y"]], {}, MultiLabel),
    ],
)
def test_a_table_by_its_labels_and_the_head(
    labels: list[Any], options: dict[str, Any], expected: type
) -> None:
    rows = [{"a": "text", "b": "text", "y": label} for label in labels]
    assert guess_kind(rows, label=["y"], **options) is expected


def test_columns_of_ones_and_zeros() -> None:
    assert guess_kind([{"a": "x", "red": 1, "blue": 0}], label=["red", "blue"]) is MultiLabel


def test_layouts_tell_themselves(tmp_path: Path) -> None:
    assert guess_kind(write(tmp_path / "beir")) is Retrieval
    assert guess_kind(tmp_path / "ner.conll") is TokenClassification
    assert guess_kind([{"tokens": ["a"], "ner_tags": ["O"]}]) is TokenClassification
    (tmp_path / "squad.json").write_text(json.dumps({"data": []}), encoding="utf-8")
    assert guess_kind(tmp_path / "squad.json") is QuestionAnswering
    assert guess_kind([{"question": "q", "context": "c", "answers": ["c"]}]) is QuestionAnswering
    assert guess_kind([{"query": "q", "positive": ["c"], "negative": []}]) is Reranking


def test_what_does_not_tell_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has the columns review, stars; say which hold texts and labels"):
        guess_kind([{"review": "a", "stars": 1}])
    with pytest.raises(
        DataError, match="row 1: no column 'star'; there are review, stars; did you mean 'stars'"
    ):
        guess_kind([{"review": "a", "stars": 1}], label=["star"])
    with pytest.raises(
        DataError, match=r"is a folder, and not one in BEIR's layout.*such as --task glue/rte"
    ):
        guess_kind(tmp_path)
