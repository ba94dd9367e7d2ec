from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.diagnosis.ledger import LEDGER, Ledger, fingerprint
from octavo.errors import OctavoWarning, OutputError
from octavo.graph import Encoder


def test_results_survive(tmp_path: Path) -> None:
    Ledger(tmp_path / "out", "one").put("a", {"x": 1})
    again = Ledger(tmp_path / "out", "one")
    assert "a" in again and again["a"] == {"x": 1}
    assert [path.name for path in (tmp_path / "out").iterdir()] == [LEDGER]


def test_another_run_is_refused_unless_forced(tmp_path: Path) -> None:
    Ledger(tmp_path, "one").put("a", 1)
    with pytest.raises(
        OutputError, match="holds the diagnosis of another model, other texts or other settings"
    ):
        Ledger(tmp_path, "two")
    assert "a" not in Ledger(tmp_path, "two", force=True)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(OutputError, match="holds other files"):
        Ledger(tmp_path, "one")


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x")
    with pytest.raises(OutputError, match="is a file; give a folder"):
        Ledger(tmp_path / "out", "one")
    with pytest.raises(OutputError, match="cannot be written"):
        Ledger(tmp_path / "out" / "deeper", "one")


def test_a_truncated_file_is_said_and_replaced(tmp_path: Path) -> None:
    Ledger(tmp_path, "one").put("a", 1)
    (tmp_path / LEDGER).write_text('{"fingerprint": "on', encoding="utf-8")
    with pytest.warns(OctavoWarning, match="cannot be read .* the run starts anew"):
        ledger = Ledger(tmp_path, "one")
    assert "a" not in ledger
    assert json.loads((tmp_path / LEDGER).read_text(encoding="utf-8"))["results"] == {}


def test_without_a_folder_nothing_is_written() -> None:
    ledger = Ledger(None, "one")
    ledger.put("a", 1)
    assert ledger["a"] == 1


def test_fingerprints_see_texts_settings_and_weights(plain: Encoder, planted: Encoder) -> None:
    same = fingerprint(plain, ["a"], {})
    assert same == fingerprint(plain, ["a"], {})
    assert len({same, fingerprint(plain, ["b"], {}), fingerprint(plain, ["a"], {"seed": 1})}) == 3
    assert fingerprint(planted, ["a"], {}) != same
