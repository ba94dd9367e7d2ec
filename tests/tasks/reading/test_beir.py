from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.errors import DataError
from octavo.tasks.reading.beir import read_collection


def write(folder: Path, qrels: str = "q1\td1\t1\nq1\td2\t0\nq2\td2\t2\n") -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    corpus = [{"_id": "d1", "title": "Rome", "text": "a city"}, {"_id": "d2", "title": "", "text": "a river"}]
    queries = [{"_id": "q1", "text": "town"}, {"_id": "q2", "text": "water"}, {"_id": "q3", "text": "other"}]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{qrels}", encoding="utf-8")
    return folder


def test_documents_carry_their_title_and_queries_without_judgement_are_left_out(tmp_path: Path) -> None:
    found = read_collection(write(tmp_path))
    assert dict(found.documents) == {"d1": "Rome a city", "d2": "a river"}
    assert dict(found.queries) == {"q1": "town", "q2": "water"}
    assert found.relevant == {"q1": {"d1": 1}, "q2": {"d2": 2}}


@pytest.mark.parametrize(
    ("qrels", "expected"),
    [
        ("q1\td9\t1\n", r"test\.tsv, line 2: document 'd9' is not in corpus\.jsonl"),
        ("q9\td1\t1\n", r"test\.tsv, line 2: query 'q9' is not in queries\.jsonl"),
        ("q1\td1\tyes\n", r"test\.tsv, line 2: score 'yes' is no whole number"),
        ("q1\td1\t0\n", r"test\.tsv names no relevant document"),
    ],
)
def test_judgements_that_name_nothing(tmp_path: Path, qrels: str, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        read_collection(write(tmp_path, qrels))


@pytest.mark.parametrize("qrels", ["q1\td1\t1\n", "q1\t0\td1\t1\n", "query\tdoc\tscore\nq1\td1\t1\n", ""])
def test_judgements_without_a_header_are_told_how_to_write_it(tmp_path: Path, qrels: str) -> None:
    folder = write(tmp_path)
    (folder / "qrels" / "test.tsv").write_text(qrels)
    with pytest.raises(DataError, match=r"test\.tsv, line 1: .* write query-id, corpus-id, score with tabs"):
        read_collection(folder)


def test_another_split_or_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dev\.tsv does not exist; there are test"):
        read_collection(write(tmp_path), "dev")
    with pytest.raises(DataError, match=r"is no folder in BEIR's layout; it needs corpus\.jsonl"):
        read_collection(tmp_path / "qrels")


def test_an_id_twice_is_an_error_that_names_both_lines(tmp_path: Path) -> None:
    folder = write(tmp_path)
    for name, line in (("corpus", 3), ("queries", 4)):
        file = folder / f"{name}.jsonl"
        kept = file.read_text(encoding="utf-8")
        first = json.loads(kept.splitlines()[0])
        file.write_text(f"{kept}\n{json.dumps(first)}\n", encoding="utf-8")
        with pytest.raises(
            DataError, match=rf"{name}\.jsonl, line {line}: the id '..' is that of line 1 already"
        ):
            read_collection(folder)
        file.write_text(kept, encoding="utf-8")


@pytest.mark.parametrize("text", ["", None])
def test_a_document_may_be_a_title_alone(tmp_path: Path, text: str | None) -> None:
    folder = write(tmp_path)
    row = {"_id": "d1", "title": "Rome", "text": text}
    (folder / "corpus.jsonl").write_text(f'{json.dumps(row)}\n{{"_id": "d2", "text": "a river"}}\n')
    assert dict(read_collection(folder).documents) == {"d1": "Rome", "d2": "a river"}


def test_a_document_of_nothing_is_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path)
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "title": "", "text": ""}\n')
    with pytest.raises(DataError, match=r"corpus\.jsonl, line 1: the text in column 'text' is empty"):
        read_collection(folder)
