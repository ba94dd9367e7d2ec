from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import DataError
from octavo.tasks.texts import Text, describe_texts, read_texts


def write(folder: Path, text: str) -> Path:
    path = folder / "texts.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_lines_are_texts_and_tabs_make_pairs(tmp_path: Path) -> None:
    path = write(tmp_path, "A text.\n\n   \nLeft side.\tRight side.\n  Naïve — yes!  \n")
    assert read_texts(path) == ["A text.", ("Left side.", "Right side."), "Naïve — yes!"]


def test_a_path_may_be_a_string(tmp_path: Path) -> None:
    assert read_texts(str(write(tmp_path, "One."))) == ["One."]


def test_two_tabs_are_refused_with_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, "fine\n\na\tb\tc\n")
    with pytest.raises(DataError, match=r"texts\.txt, line 3: 2 tabs; write one text, or two texts"):
        read_texts(path)


@pytest.mark.parametrize("line", ["left\t", "\tright", "left\t  "], ids=["right", "left", "blank"])
def test_a_pair_with_an_empty_side_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(DataError, match=r"line 1: one side of the tab is empty"):
        read_texts(write(tmp_path, line))


@pytest.mark.parametrize("text", ["", "\n\n", " \t \n"], ids=["empty", "line-ends", "white-space"])
def test_a_file_without_texts_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="holds no text; write one text a line"):
        read_texts(write(tmp_path, text))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        read_texts(tmp_path / "none.txt")


def test_the_demo_texts_are_many_and_different() -> None:
    texts = read_texts(Path(__file__).parents[2] / "src" / "octavo" / "demo_texts.txt")
    pairs = [text for text in texts if isinstance(text, tuple)]
    assert len(texts) - len(pairs) >= 300
    assert len(pairs) >= 70
    assert len(set(texts)) == len(texts)


TABLES = {
    "csv by name": ("texts.csv", "text,label\nA good film.,1\n", r"ends in \.csv.*'text', 'label'"),
    "csv by header": ("texts.txt", "text,label\nA film.,1\nA play.,0\n", r"1 is a header, 'text', 'label'"),
    "csv by numbers": ("texts.txt", "A good film.,1\nA bad one.,0\n", r"number 2 holds numbers"),
    "json lines": ("texts.txt", '{"text": "a", "label": 1}\n', r"line 1 is JSON \(text, label\)"),
    "tsv by header": ("texts.tsv", "query\tdocument\nwho?\tme\n", r"line 1 is a header, 'query', 'document'"),
    "scores": ("texts.tsv", "a good film\t4.5\na bad one\t1\n", r"between tabs, number 2 holds numbers"),
    "labels": ("texts.tsv", "a good film\tpos\na bad one\tneg\n" * 6, r"number 2 holds labels \(neg, pos\)"),
    "numbers before": ("texts.tsv", "1\ta good film\n2\ta bad one\n", r"number 1 holds numbers"),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    file, content, reason = TABLES[name]
    (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=rf"{file} looks like a table: .*{reason}.*write the column of texts"):
        read_texts(tmp_path / file)


@pytest.mark.parametrize(
    "content",
    [
        "Yes, it is.\nNo, never.\nOf course, why not?\n",
        "red, green\nblue, yellow\n",
        "yes\tno\nup\tdown\n",
        "who wrote it?\tA man from the north.\nwhen?\tIn 1902.\n",
        "[CLS] is a token\n{curly}\n",
        "text\nA file whose first text is short.\n",
        "1\n2\n3\n",
    ],
    ids=["commas", "words", "short pairs", "questions", "brackets", "short", "numbers"],
)
def test_texts_with_commas_and_short_pairs_are_no_table(tmp_path: Path, content: str) -> None:
    assert len(read_texts(write(tmp_path, content))) == len(content.splitlines())


@pytest.mark.parametrize(
    ("texts", "said"),
    [(["a"], "1 text"), ([("a", "b")] * 3, "3 pairs"), (["a", "b", ("a", "b")], "2 texts and 1 pair")],
    ids=["one", "pairs", "both"],
)
def test_what_was_understood_is_said(texts: list[Text], said: str) -> None:
    assert describe_texts(texts) == said


def test_a_column_of_a_table_is_a_file_of_texts(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("question,answer,id\nwhy?,because,1\nwho?,me,2\n", encoding="utf-8")
    assert read_texts(f"{file}:answer") == ["because", "me"]
    assert read_texts(f"{file}: question, answer") == [("why?", "because"), ("who?", "me")]
    with pytest.raises(DataError, match=r"a\.csv, line 2: no column 'text'; there are question, answer, id"):
        read_texts(f"{file}:text")
    with pytest.raises(DataError, match=r"a\.csv: 3 columns; name one of texts, or the two of a pair"):
        read_texts(f"{file}:id,question,answer")
    with pytest.raises(DataError, match=r"looks like a table.*Or name the column: a\.csv:COLUMN"):
        read_texts(file)
