from __future__ import annotations

from pathlib import Path

import pytest
from safetensors import SafetensorError

from octavo.errors import OutputError
from octavo.files import check_output, write_file, write_folder


def test_a_folder_appears_complete(tmp_path: Path) -> None:
    with write_folder(tmp_path / "deep" / "new") as draft:
        (draft / "a").write_text("1", encoding="utf-8")
        assert not (tmp_path / "deep" / "new").exists()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["new"]
    assert (tmp_path / "deep" / "new" / "a").read_text(encoding="utf-8") == "1"


def test_a_block_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), write_folder(tmp_path / "new") as draft:
        (draft / "a").write_text("1", encoding="utf-8")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_under_safetensors_is_said_plainly(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match=r"model cannot be written: .*No space left"),
        write_folder(tmp_path / "model") as draft,
    ):
        (draft / "half").touch()
        raise SafetensorError("I/O error: No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_block_that_fails_keeps_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old", encoding="utf-8")
    with pytest.raises(ZeroDivisionError), write_file(tmp_path / "old", force=True) as draft:
        draft.write_text("new", encoding="utf-8")
        raise ZeroDivisionError
    assert (tmp_path / "old").read_text(encoding="utf-8") == "old"


def test_force_replaces_a_folder(tmp_path: Path) -> None:
    for content in ("1", "2"):
        with write_folder(tmp_path / "new", force=True, marker="a") as draft:
            (draft / "a").write_text(content, encoding="utf-8")
    assert (tmp_path / "new" / "a").read_text(encoding="utf-8") == "2"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_what_exists_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="exists already; choose another place or use --force"):
        check_output(tmp_path)


def test_a_dangling_link_exists(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputError, match="exists already"):
        check_output(tmp_path / "link")


def test_force_spares_a_folder_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("", encoding="utf-8")
    with pytest.raises(OutputError, match="holds other files"):
        check_output(tmp_path, force=True, marker="octavo.json")


def test_force_spares_a_file_where_a_folder_goes(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"mine\.txt is a file, which --force spares"):
        check_output(tmp_path / "mine.txt", force=True, marker="octavo.json")


def test_force_takes_an_empty_folder(tmp_path: Path) -> None:
    check_output(tmp_path, force=True, marker="octavo.json")


def test_a_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OutputError, match="is a file, not a folder"):
        check_output(tmp_path / "file" / "a" / "b")
