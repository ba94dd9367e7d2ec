from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.errors import DataError
from octavo.tasks.reading.squad import read_questions

CONTEXT = "Anna lives in Rome."


def squad(*questions: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": "2",
        "data": [{"title": "x", "paragraphs": [{"context": CONTEXT, "qas": list(questions)}]}],
    }


def write(tmp_path: Path, document: Any) -> Path:
    (tmp_path / "a.json").write_text(json.dumps(document), encoding="utf-8")
    return tmp_path / "a.json"


def test_squad_with_and_without_answers(tmp_path: Path) -> None:
    where = {"id": "1", "question": "Where?", "answers": [{"text": "Rome", "answer_start": 14}]}
    why = {"id": "2", "question": "Why?", "answers": [], "is_impossible": True}
    first, second = read_questions(write(tmp_path, squad(where, why)))
    assert (first.answers, first.starts, second.answers) == (("Rome",), (14,), ())


def test_rows_as_the_hub_has_them() -> None:
    row = {"question": "Who?", "context": CONTEXT}
    with_starts = row | {"answers": {"text": ["Anna"], "answer_start": [0]}}
    assert read_questions([with_starts])[0].starts == (0,)
    assert read_questions([row | {"answers": ["Rome"]}])[0].starts == (14,)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (
            [{"text": "Rome", "answer_start": 3}],
            r"question '1': the answer 'Rome' does not stand at character 3",
        ),
        ([{"answer_start": 3}], "is not laid out as SQuAD: 'text' is missing"),
    ],
)
def test_answers_that_are_not_in_the_context(tmp_path: Path, answers: list[Any], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        read_questions(write(tmp_path, squad({"id": "1", "question": "Where?", "answers": answers})))


def test_what_is_no_squad(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'paragraphs' is missing"):
        read_questions(write(tmp_path, {"data": [{}]}))
    with pytest.raises(DataError, match="holds no questions"):
        read_questions(write(tmp_path, {"data": []}))
    with pytest.raises(DataError, match="row 1: the text in column 'question' is empty"):
        read_questions([{"question": "", "context": "a", "answers": ["a"]}])


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"answers": {"text": ["Anna", "Rome"], "answer_start": [0]}},
            "2 answers and 1 places in answer_start",
        ),
        ({"answers": {"text": ["Anna"], "answer_start": ["0"]}}, "'Anna' does not stand at character 0"),
        ({"answers": [None]}, "an answer is None"),
        ({"answers": [""]}, "an answer is ''"),
        ({"answers": None}, "column 'answers' needs text and answer_start"),
        ({"answers": 3}, "column 'answers' needs text and answer_start"),
    ],
)
def test_rows_whose_answers_are_broken(row: dict[str, Any], expected: str) -> None:
    with pytest.raises(DataError, match=rf"row 1: .*{expected}"):
        read_questions([{"question": "Who?", "context": CONTEXT, **row}])


@pytest.mark.parametrize(
    "document",
    [
        {"data": ["text"]},
        {"data": [{"paragraphs": [3]}]},
        {"data": [{"paragraphs": [{"context": "a", "qas": ["b"]}]}]},
        {"data": [{"paragraphs": [{"context": "a", "qas": [{"question": "b", "answers": ["c"]}]}]}]},
    ],
)
def test_other_layouts_are_one_sentence(tmp_path: Path, document: Any) -> None:
    with pytest.raises(DataError, match="is not laid out as SQuAD; it has data"):
        read_questions(write(tmp_path, document))


def test_questions_and_contexts_that_are_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="question '1': the question is empty"):
        read_questions(write(tmp_path, squad({"id": "1", "question": None, "answers": []})))


def test_arrays_of_frames_are_lists() -> None:
    answers = {"text": np.array(["Rome"], dtype=object), "answer_start": np.array([14])}
    row = {"question": "Where?", "context": CONTEXT, "answers": answers}
    assert read_questions([row])[0].starts == (14,)
