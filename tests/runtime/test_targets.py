"""Files for other processors: unsigned weights, exact floats, and what a file says it was made for."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from octavo.errors import OctavoWarning, SpecError
from octavo.graph import QuantizedEncoder
from octavo.runtime import targets
from octavo.runtime.artifacts import open_onnx
from octavo.runtime.exporting import export
from octavo.runtime.targets import lacks_vnni


def weights(path: Path) -> dict[str, tuple[Any, Any]]:
    """Return integers and zero-points of the products of bytes, by the weight's name."""
    graph = onnx.load(str(path)).graph
    stored = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    return {
        node.input[1]: (stored[node.input[1]], stored[node.input[5]])
        for node in graph.node
        if node.op_type == "MatMulIntegerToFloat"
    }


def said(path: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(str(path)).metadata_props}


def test_unsigned_weights_are_the_same_numbers(tiny_int8: QuantizedEncoder, tmp_path: Path) -> None:
    plain = weights(export(tiny_int8, tmp_path / "vnni.onnx"))
    shifted = weights(export(tiny_int8, tmp_path / "avx2.onnx", target="avx2", check=True))
    assert plain.keys() == shifted.keys() and plain
    for name, (integers, zero_point) in plain.items():
        found, offset = shifted[name]
        assert integers.dtype == np.int8 and found.dtype == offset.dtype == np.uint8
        assert np.array_equal(found.astype(int) - offset, integers.astype(int) - zero_point)


@pytest.mark.parametrize("target", ["web", "any"])
def test_files_for_browsers_are_as_faithful(target: str, tiny_int8: QuantizedEncoder, tmp_path: Path) -> None:
    path = export(tiny_int8, tmp_path / "model.onnx", target=target, check=True)
    graph = onnx.load(str(path)).graph
    # the build of ONNX Runtime Web that transformers.js loads has no operators for 64-bit floats
    assert all(each.data_type != onnx.TensorProto.DOUBLE for each in graph.initializer)
    assert all(
        node.attribute[0].i != onnx.TensorProto.DOUBLE for node in graph.node if node.op_type == "Cast"
    )
    batch = next(iter(tiny_int8.batches(["a text", "another text of some words"])))[1]
    found = open_onnx(path)({name: tensor.numpy() for name, tensor in batch.items()})["last_hidden_state"]
    expected = tiny_int8(batch)["last_hidden_state"].numpy()
    cosine = (found * expected).sum(-1) / np.linalg.norm(found, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert found.dtype == np.float32 and cosine.min() > 0.999


def test_a_file_says_what_it_was_made_for(tiny_int8: QuantizedEncoder, tmp_path: Path) -> None:
    for name, target in targets.TARGETS.items():
        metadata = said(export(tiny_int8, tmp_path / f"{name}.onnx", target=name))
        assert (metadata["target"], metadata["processors"]) == (name, target.sentence)


def test_openvino_narrows_weights_for_avx2_and_has_no_files_for_browsers(
    tiny_int8: QuantizedEncoder, tmp_path: Path
) -> None:
    path = export(tiny_int8, tmp_path / "ov.onnx", backend="openvino", target="avx2")
    assert said(path)["target"] == "any"  # weights of 7 bits do not saturate
    with pytest.raises(SpecError, match="openvino has no files for the target web; use vnni or avx2"):
        export(tiny_int8, tmp_path / "web.onnx", backend="openvino", target="web")
    with pytest.raises(SpecError, match="unknown target 'avx'"):
        export(tiny_int8, tmp_path / "web.onnx", target="avx")
    assert not (tmp_path / "web.onnx").exists()


def test_a_processor_that_a_file_was_not_made_for_is_a_warning(
    tiny_int8: QuantizedEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = export(tiny_int8, tmp_path / "plain.onnx")
    other = export(tiny_int8, tmp_path / "other.onnx", target="avx2")
    monkeypatch.setattr(targets, "lacks_vnni", lambda: True)
    with pytest.warns(OctavoWarning, match="plain.onnx was not made for this processor.*--target avx2"):
        open_onnx(plain)
    open_onnx(other)  # warnings are errors here


@pytest.mark.parametrize(("flags", "lacks"), [("sse avx2", True), ("avx2 avx512_vnni", False)])
def test_processors_without_vnni_are_told_by_their_flags(
    flags: str, lacks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = tmp_path / "cpuinfo"
    listing.write_text(f"model name\t: some\nflags\t\t: fpu {flags}\n")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    assert lacks_vnni(listing) is lacks
    assert not lacks_vnni(tmp_path / "nothing")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert not lacks_vnni(listing)
