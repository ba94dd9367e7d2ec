from __future__ import annotations

import tomllib

import pytest

from tests.release.dist import ROOT
from tests.release.floors import SLICE, floors


def test_every_requirement_of_users_has_a_floor() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = dict(each.split("==") for each in floors(project))
    assert {"torch", "transformers", "numpy", "onnx", "onnxruntime", "openvino"} <= pinned.keys()


def test_one_without_a_floor_is_named() -> None:
    extras: dict[str, list[str]] = {"demo": [], "onnx": ["onnx"], "openvino": [], "sentence-transformers": []}
    project = {"dependencies": ["torch>=2.13.0"], "optional-dependencies": extras}
    with pytest.raises(SystemExit, match="onnx has no floor; write the lowest version that works"):
        floors(project)


def test_the_tests_that_are_run_exist() -> None:
    assert all((ROOT / name).exists() for name in SLICE)
