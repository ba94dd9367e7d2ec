from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from octavo.graph import QuantizedEncoder
from octavo.runtime.backends import BACKENDS
from octavo.runtime.translate import joining
from octavo.runtime.translate import model as translated
from tests.runtime.conftest import TEXTS


def test_query_key_and_value_are_one_product_and_give_the_same_integers(
    tiny_int8: QuantizedEncoder, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle is ONNX Runtime on the file with three products."""
    monkeypatch.setattr(translated, "join_products", lambda graph, results: None)
    apart = BACKENDS["onnxruntime"].onnx_model(tiny_int8)  # type: ignore[attr-defined]
    onnx.save(apart, tmp_path / "apart.onnx")
    batch = next(iter(tiny_int8.batches(list(TEXTS))))[1]
    feed = {name: tensor.numpy() for name, tensor in batch.items()}
    joined = BACKENDS["onnxruntime"].site_integers(tiny_file, feed)  # type: ignore[attr-defined]
    expected = BACKENDS["onnxruntime"].site_integers(tmp_path / "apart.onnx", feed)  # type: ignore[attr-defined]
    assert set(joined) == set(expected)
    for name in ("layers.0.query.q", "layers.0.key.q", "layers.0.value.q"):
        steps = np.abs(joined[name].astype(int) - expected[name].astype(int))
        assert steps.max() <= 1 and (steps == 0).mean() > 0.999
    assert len(onnx.load(str(tiny_file)).graph.node) < len(apart.graph.node)


def test_joined_bytes_go_into_heads_at_once(tiny_file: Path) -> None:
    """Three views and three transpositions of query, key and value are one each."""
    nodes = onnx.load(str(tiny_file)).graph.node
    makers = {name: node for node in nodes for name in node.output}
    splits = [node for node in nodes if node.op_type == "Split"]
    assert len(splits) == 2  # one a layer
    for split in splits:
        assert list(split.output) == [split.output[0].replace("query", n) for n in ("query", "key", "value")]
        turned = makers[split.input[0]]
        assert [turned.op_type, makers[turned.input[0]].op_type] == ["Transpose", "Reshape"]


def test_going_into_heads_at_once_changes_no_bit(
    tiny_int8: QuantizedEncoder, tiny_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle is ONNX Runtime on the file with a view and a transposition for each."""
    monkeypatch.setattr(joining, "_common_heads", lambda graph, pairs, readers: None)
    views = BACKENDS["onnxruntime"].onnx_model(tiny_int8)  # type: ignore[attr-defined]
    onnx.save(views, tmp_path / "views.onnx")
    batch = next(iter(tiny_int8.batches(list(TEXTS))))[1]
    feed = {name: tensor.numpy() for name, tensor in batch.items()}
    found, expected = (
        BACKENDS["onnxruntime"].site_integers(file, feed)  # type: ignore[attr-defined]
        for file in (tiny_file, tmp_path / "views.onnx")
    )
    assert set(found) == set(expected)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert len(onnx.load(str(tiny_file)).graph.node) < len(views.graph.node)


def test_openvino_reads_a_file_with_joined_products(tiny_int8: QuantizedEncoder, tiny_file: Path) -> None:
    openvino = pytest.importorskip("openvino")
    batch = next(iter(tiny_int8.batches(list(TEXTS))))[1]
    feed = {name: tensor.numpy() for name, tensor in batch.items()}
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    found = openvino.Core().compile_model(str(tiny_file), "CPU", settings)(feed)[0]
    session = onnxruntime.InferenceSession(str(tiny_file), providers=["CPUExecutionProvider"])
    assert np.abs(found - session.run(None, feed)[0]).mean() < 0.02
