from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import DataError
from octavo.tasks.reading.conll import read_tagged

CONLL = """-DOCSTART- -X- O O

EU NNP I-NP B-ORG
rejects VBZ I-VP O
# SYM O O

Peter NNP I-NP B-PER
"""


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "a.conll").write_text(text, encoding="utf-8")
    return tmp_path / "a.conll"


def test_a_conll_file_has_the_tag_in_its_last_column(tmp_path: Path) -> None:
    first, second = read_tagged(write(tmp_path, CONLL))
    assert (first.words, first.tags) == (("EU", "rejects", "#"), ("B-ORG", "O", "O"))
    assert (second.words, second.tags) == (("Peter",), ("B-PER",))
    assert second.where.endswith("a.conll, line 7")


def test_comments_of_conll_u_are_skipped(tmp_path: Path) -> None:
    (found,) = read_tagged(write(tmp_path, "# sent_id = 1 of 2\nI\tO\nrun\tO\n"))
    assert found.words == ("I", "run")


def test_rows_with_lists() -> None:
    rows = [{"tokens": ["a", "b"], "ner_tags": [0, 1]}]
    assert read_tagged(rows)[0].tags == ("0", "1")
    assert read_tagged([{"w": ["a"], "t": ["O"]}], "w", "t")[0].words == ("a",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("EU B-ORG\nrejects\n", r"a\.conll, line 2: 1 columns where the first word has 2"),
        ("EU\n", r"a\.conll, line 1: a word without a tag; write both on the line"),
        ("\n\n", r"a\.conll holds no words"),
    ],
)
def test_lines_of_unequal_length_are_an_error(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        read_tagged(write(tmp_path, text))


def test_every_word_has_a_tag() -> None:
    with pytest.raises(
        DataError, match="row 1: 2 words in 'tokens' and 1 tags in 'tags'; give every word one"
    ):
        read_tagged([{"tokens": ["a", "b"], "tags": ["O"]}])
    with pytest.raises(DataError, match="row 1: column 'tokens' holds a str where a list is needed"):
        read_tagged([{"tokens": "a b", "tags": ["O"]}])
    with pytest.raises(DataError, match="row 1: no column 'tags'; there are tokens"):
        read_tagged([{"tokens": ["a"]}])
