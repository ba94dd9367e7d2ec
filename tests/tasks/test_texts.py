from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import DataError
from octavo.tasks.texts import read_texts


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
