from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.errors import MissingExtraError, ModelError, SpecError
from octavo.runtime.artifacts import name_apart, open_artifacts, open_onnx


def test_both_backends_compute_the_same(tiny_file: Path) -> None:
    pytest.importorskip("openvino")
    ids = {"input_ids": np.array([[2, 9, 10, 11, 3]])}
    one, other = (open_onnx(tiny_file, name, threads=1)(ids) for name in ("onnxruntime", "openvino"))
    left, right = one["last_hidden_state"].ravel(), other["last_hidden_state"].ravel()
    assert left @ right / np.linalg.norm(left) / np.linalg.norm(right) > 0.999


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.onnx is not a file"):
        open_onnx(tmp_path / "none.onnx")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    with pytest.raises(ModelError, match=r"onnxruntime cannot open .*broken\.onnx"):
        open_onnx(tmp_path / "broken.onnx")


def test_an_unknown_backend_is_refused(tiny_file: Path) -> None:
    with pytest.raises(SpecError, match="unknown backend 'onnxruntim'; did you mean 'onnxruntime'"):
        open_onnx(tiny_file, "onnxruntim")


def test_a_backend_that_is_not_installed_is_named(tiny_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.runtime.backends.backend.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"openvino.*pip install 'octavo\[openvino\]'"):
        open_onnx(tiny_file, "openvino")


def test_a_file_opens_in_the_backends_asked_for_that_read_it(tiny_file: Path) -> None:
    pytest.importorskip("openvino")
    both = open_artifacts(str(tiny_file), ("onnxruntime", "openvino"))
    assert [artifact.backend for artifact in both] == ["onnxruntime", "openvino"]
    (named,) = open_artifacts(f"{tiny_file}@openvino", ("onnxruntime",))
    assert (named.backend, named.source) == ("openvino", str(tiny_file))
    assert named.name == "tiny.onnx (openvino)"


def test_files_of_one_name_are_told_apart_by_their_paths(tiny_file: Path, tmp_path: Path) -> None:
    given = [tmp_path / "a" / "x" / "model.onnx", tmp_path / "b" / "x" / "model.onnx", tmp_path / "one.onnx"]
    for path in given:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tiny_file.read_bytes())
    opened = [artifact for path in given for artifact in open_artifacts(str(path))]
    names = [artifact.name for artifact in name_apart(opened)]
    assert names == ["a/x/model.onnx (onnxruntime)", "b/x/model.onnx (onnxruntime)", "one.onnx (onnxruntime)"]
    twice = name_apart([opened[2], opened[2]])
    assert [artifact.name for artifact in twice] == ["one.onnx (onnxruntime)", "one.onnx (onnxruntime) #2"]
