from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import DataError
from octavo.tasks.lines import read_lines


def write(folder: Path, data: bytes) -> Path:
    path = folder / "file.txt"
    path.write_bytes(data)
    return path


def test_line_ends_of_every_system_are_dropped(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path, b"one\r\ntwo\nthree")) == ["one", "two", "three"]


def test_a_byte_order_mark_is_not_part_of_the_text(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path, b"\xef\xbb\xbfone\n")) == ["one"]


def test_unicode_line_separators_inside_a_text_do_not_cut_it(tmp_path: Path) -> None:
    text = "a\u2028b\x85c\x0bd"
    assert read_lines(write(tmp_path, text.encode() + b"\n")) == [text]


def test_only_the_last_line_end_is_dropped(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path, b"one\n\n")) == ["one", ""]


def test_an_empty_file_has_no_lines(tmp_path: Path) -> None:
    assert read_lines(write(tmp_path, b"")) == []


def test_a_byte_that_is_not_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, b"fine\nGr\xfcn\n")
    with pytest.raises(DataError, match=r"file\.txt, line 2: byte 3 of the line \(0xfc\) is not UTF-8; save"):
        read_lines(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt does not exist; give the path of a text file"):
        read_lines(tmp_path / "none.txt")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is a folder; give a text file"):
        read_lines(tmp_path)


def test_a_path_through_a_file_cannot_be_read(tmp_path: Path) -> None:
    inside = write(tmp_path, b"x") / "more.txt"
    with pytest.raises(DataError, match=r"cannot be read \(Not a directory\)"):
        read_lines(inside)
