from __future__ import annotations

import inspect
import pickle

import pytest

from octavo import errors
from octavo.errors import MissingExtraError, OctavoError, did_you_mean, nearest

KNOWN = ["w8a8", "w8a8-peg3", "w8a8-peg6", "q8bert"]


def error_types() -> list[type[BaseException]]:
    members = vars(errors).values()
    return [kind for kind in members if inspect.isclass(kind) and issubclass(kind, BaseException)]


@pytest.mark.parametrize("kind", error_types(), ids=lambda kind: kind.__name__)
def test_every_error_is_drawn_in_the_tree(kind: type[BaseException]) -> None:
    assert errors.__doc__ is not None
    assert f" {kind.__name__} " in errors.__doc__
    assert issubclass(kind, OctavoError | UserWarning)


def test_a_missing_extra_names_the_command_that_installs_it() -> None:
    error = MissingExtraError("onnx", "ONNX export")
    assert str(error) == "ONNX export needs the extra 'onnx'; run: pip install 'octavo[onnx]'"


def test_a_missing_extra_survives_the_way_back_from_another_process() -> None:
    error = MissingExtraError("onnx", "ONNX export")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_nearest_names_come_best_first() -> None:
    assert nearest("w8a8-peg", KNOWN)[:2] == ["w8a8-peg6", "w8a8-peg3"]
    assert nearest("w8a8-peg", KNOWN, limit=1) == ["w8a8-peg6"]
    assert nearest("entirely different", KNOWN) == []


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("zzz", KNOWN, ""),
        ("q8brt", KNOWN, "; did you mean 'q8bert'?"),
        ("ab", ["abc", "abd"], "; did you mean 'abd' or 'abc'?"),
        ("ab", ["abc", "abd", "abe"], "; did you mean 'abe', 'abd' or 'abc'?"),
    ],
    ids=["none", "one", "two", "three"],
)
def test_did_you_mean_lists_the_nearest(name: str, known: list[str], expected: str) -> None:
    assert did_you_mean(name, iter(known)) == expected
