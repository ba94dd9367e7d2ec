from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.errors import OutputError
from octavo.ledger import Ledger, fingerprint, read_json

ABOUT = {"model": "tiny", "seeds": [0, 1]}


def test_results_survive(tmp_path: Path) -> None:
    Ledger(tmp_path / "run", ABOUT).put("a", {"x": 1, "y": [0.1, None]})
    again = Ledger(tmp_path / "run", ABOUT)
    assert again.get("a") == {"x": 1, "y": [0.1, None]}
    assert again.get("b") is None
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["a.json", "about.json"]


def test_nothing_is_written_before_the_first_result(tmp_path: Path) -> None:
    Ledger(tmp_path / "run", ABOUT)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("on_disk", [True, False], ids=["folder", "memory"])
def test_tensors_come_back_bit_for_bit_beside_plain_data(tmp_path: Path, on_disk: bool) -> None:
    ledger = Ledger(tmp_path / "run" if on_disk else None, ABOUT)
    tensors = {
        "a/b": torch.tensor([1e-40, -0.0, 3.0]),
        "c": torch.arange(4, dtype=torch.int32).view(2, 2).t(),
    }
    ledger.put("t", {"n": 1}, tensors)
    plain, found = ledger.get_tensors("t") or ({}, {})
    assert plain == {"n": 1} == ledger.get("t")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)


@pytest.mark.parametrize("on_disk", [True, False], ids=["folder", "memory"])
def test_the_last_result_counts_whatever_its_form(tmp_path: Path, on_disk: bool) -> None:
    ledger = Ledger(tmp_path / "run" if on_disk else None, ABOUT)
    ledger.put("a", {"n": 1}, {"t": torch.ones(1)})
    ledger.put("a", {"n": 2})
    assert ledger.get("a") == {"n": 2}
    assert ledger.get_tensors("a") == ({"n": 2}, {})
    ledger.put("a", {"n": 3}, {"t": torch.ones(1)})
    assert ledger.get("a") == {"n": 3}
    ledger.drop("a")
    assert ledger.get("a") is None is ledger.get_tensors("a")


def test_without_a_folder_results_live_in_memory() -> None:
    ledger = Ledger(None, ABOUT)
    ledger.put("a", {"x": (1, 2)})
    assert ledger.get("a") == {"x": [1, 2]}  # as a file would give it back
    assert list(ledger.results()) == [("a", {"x": [1, 2]})]


def test_keys_with_slashes_are_folders_and_results_are_listed_by_key(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "run", ABOUT)
    ledger.put("b/two", {"n": 2})
    ledger.put("a", {"n": 1})
    assert (tmp_path / "run" / "b" / "two.json").is_file()
    assert list(ledger.results()) == [("a", {"n": 1}), ("b/two", {"n": 2})]


def test_keys_that_differ_in_what_a_file_name_cannot_hold_stay_apart(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "run", ABOUT)
    for number, key in enumerate(("my recipe", "my_recipe", "my:recipe")):
        ledger.put(key, {"n": number})
    assert [ledger.get(key) for key in ("my recipe", "my_recipe", "my:recipe")] == [
        {"n": n} for n in range(3)
    ]


@pytest.mark.parametrize("key", ["..", "a/../b", "", "about"])
def test_keys_that_cannot_be_files_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(OutputError, match="cannot name a result"):
        Ledger(tmp_path / "run", ABOUT).put(key, {})


def test_another_run_is_refused_with_what_differs(tmp_path: Path) -> None:
    Ledger(tmp_path, ABOUT, noun="a test").put("a", {"x": 1})
    with pytest.raises(OutputError, match=r'holds a test with another model \(model: "tiny", now "large"\)'):
        Ledger(tmp_path, ABOUT | {"model": "large"}, noun="a test")
    with pytest.raises(OutputError, match=r"another more \(more: null, now 1\); use --force"):
        Ledger(tmp_path, ABOUT | {"more": 1}, remedy="use --force")
    assert Ledger(tmp_path, ABOUT).get("a") == {"x": 1}


def test_tuples_and_lists_are_the_same_run(tmp_path: Path) -> None:
    Ledger(tmp_path, {"seeds": (0, 1)}).put("a", {})
    assert Ledger(tmp_path, {"seeds": [0, 1]}).get("a") == {}


def test_force_starts_anew_and_spares_other_files(tmp_path: Path) -> None:
    first = Ledger(tmp_path, ABOUT)
    first.put("a", {"x": 1})
    first.put("deep/t", {"x": 1}, {"t": torch.ones(2)})
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    second = Ledger(tmp_path, {"model": "other"}, force=True)
    assert second.get("a") is None is second.get_tensors("deep/t")
    assert (tmp_path / "notes.txt").read_text(encoding="utf-8") == "mine"
    second.put("a", {"x": 2})
    assert read_json(tmp_path / "about.json") == {"model": "other"}


def test_force_keeps_the_results_of_the_same_run(tmp_path: Path) -> None:
    Ledger(tmp_path, ABOUT).put("a", {"x": 1})
    assert Ledger(tmp_path, ABOUT, force=True).get("a") == {"x": 1}


@pytest.mark.parametrize(
    "content", [b'{"x": ', b"[1, 2]", b"", b"\xff\xfe"], ids=["cut", "list", "empty", "bytes"]
)
def test_a_damaged_result_counts_as_missing(tmp_path: Path, content: bytes) -> None:
    ledger = Ledger(tmp_path / "run", ABOUT)
    ledger.put("a", {"x": 1})
    ledger.put("t", {"x": 1}, {"t": torch.ones(3)})
    for file in ("a.json", "t.safetensors"):
        (tmp_path / "run" / file).write_bytes(content)
    assert ledger.get("a") is None is ledger.get("t")
    assert ledger.get_tensors("t") is None
    assert list(ledger.results()) == []
    ledger.put("t", {"x": 2}, {"t": torch.ones(3)})
    assert ledger.get("t") == {"x": 2}


def test_a_damaged_about_is_refused_unless_forced(tmp_path: Path) -> None:
    Ledger(tmp_path, ABOUT).put("a", {"x": 1})
    (tmp_path / "about.json").write_text("{", encoding="utf-8")
    with pytest.raises(OutputError, match=r"about\.json cannot be read"):
        Ledger(tmp_path, ABOUT)
    assert Ledger(tmp_path, ABOUT, force=True).get("a") is None


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x", encoding="utf-8")
    with pytest.raises(OutputError, match=r"holds other files \(it has no compare\.json\)"):
        Ledger(tmp_path, ABOUT, name="compare.json")


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("x", encoding="utf-8")
    for folder in (tmp_path / "out", tmp_path / "out" / "deeper"):
        with pytest.raises(OutputError, match=r"exists already|is a file"):
            Ledger(folder, ABOUT)


def test_an_interrupted_write_leaves_the_earlier_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "run", ABOUT)
    ledger.put("a", {"x": 1})

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(json, "dumps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ledger.put("a", {"x": 2})
    monkeypatch.undo()
    assert ledger.get("a") == {"x": 1}
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["a.json", "about.json"]


# -- fingerprints --------------------------------------------------------------------------------------------

NEIGHBOURS: list[Any] = [
    [],
    [[]],
    {},
    "",
    None,
    0,
    False,
    0.0,
    "0",
    ["a", "b"],
    ["ab"],
    ["a", ["b"]],
    [["a"], "b"],
    ['a", "b'],
    {"a": 1},
    {"a": "1"},
    [("a", 1)],
    torch.zeros(2),
    torch.zeros(1, 2),
    torch.zeros(3),
    torch.zeros(2, dtype=torch.float64),
    torch.zeros(2, dtype=torch.int32),
    torch.tensor([0.0, -0.0]),
    torch.tensor(0.0),
    torch.zeros(0),
    [torch.zeros(2), torch.zeros(2)],
    {"w": torch.zeros(2)},
]


def test_fingerprints_tell_neighbours_apart() -> None:
    assert len({fingerprint(value) for value in NEIGHBOURS}) == len(NEIGHBOURS)
    assert fingerprint("a", "b") != fingerprint("ab") != fingerprint(["a", "b"])


def test_fingerprints_do_not_depend_on_the_order_of_keys_or_the_layout_of_tensors() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    square = torch.arange(6.0).view(2, 3)
    assert fingerprint(square.t()) == fingerprint(square.t().contiguous())
    assert fingerprint(torch.nn.Parameter(square)) == fingerprint(square)


def test_fingerprints_are_the_same_in_every_run() -> None:
    """Written down: a ledger that another process wrote must be known again."""
    assert fingerprint(["a text", ("b", "c")], {"bits": 8, "rate": 0.1, "none": None}) == (
        "6ea0c97583ffee786e1b96f5fb0ceeaf5bc037e38a76b92a8d9d2116be986ef3"
    )
