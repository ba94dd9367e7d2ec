from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import octavo
from octavo.errors import ModelError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.runtime.exporting import export
from octavo.runtime.integers import check_integers


def test_every_product_of_int8_is_an_integer_kernel_in_onnxruntime(tiny_file: Path) -> None:
    report = check_integers(tiny_file, "onnxruntime")
    # query, key and value as one, three linear layers and two attention products in each of two layers
    assert (report.products, report.kernels, report.floats) == (12, 12, ())


def test_full_placement_needs_no_operator_of_onnxruntime(
    tiny_file: Path, tiny_encoder: Encoder, tmp_path: Path
) -> None:
    """Tools of integer-only hardware read standard operators; files for a CPU use ONNX Runtime's own."""
    model = octavo.quantize(tiny_encoder, octavo.recipe("w8a8"), calibration=["a text", "another text"])
    full = onnx.load(str(export(model, tmp_path / "full.onnx")))
    assert [opset.domain for opset in full.opset_import] == [""]
    fast = onnx.load(str(tiny_file))
    assert [opset.domain for opset in fast.opset_import] == ["", "com.microsoft"]
    assert sum(node.op_type == "MatMulIntegerToFloat" for node in fast.graph.node) == 8


def test_every_linear_layer_of_int8_is_an_integer_kernel_in_openvino(
    tiny_int8: QuantizedEncoder, tmp_path: Path
) -> None:
    pytest.importorskip("openvino")
    path = export(tiny_int8, tmp_path / "model.onnx", backend="openvino")
    report = check_integers(path, "openvino")
    assert report.kernels >= 12 and report.floats == ()


def test_a_layer_that_falls_back_to_float_is_named(tiny_file: Path, tmp_path: Path) -> None:
    # A product of matrices and a sum with a float vector: ONNX Runtime makes a float Gemm of the two before
    # it looks for integers.
    model = onnx.load(str(tiny_file))
    index = next(i for i, node in enumerate(model.graph.node) if node.output[0] == "layers.0.ffn_hidden")
    layer = model.graph.node[index]
    nodes = list(model.graph.node)
    bias = _vector(64)
    model.graph.initializer.append(bias)
    left, right, left_scale, right_scale, left_zero, right_zero = layer.input[:6]
    nodes[index : index + 1] = [
        onnx.helper.make_node("DequantizeLinear", [left, left_scale, left_zero], ["left"]),
        onnx.helper.make_node("DequantizeLinear", [right, right_scale, right_zero], ["right"], axis=1),
        onnx.helper.make_node("MatMul", ["left", "right"], ["product"]),
        onnx.helper.make_node("Add", ["product", bias.name], list(layer.output)),
    ]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    path = tmp_path / "broken.onnx"
    onnx.save(model, path)
    with pytest.raises(
        ModelError,
        match=r"onnxruntime computes layers\.0\.ffn_hidden\.weight in float although the file quantizes",
    ):
        check_integers(path)


def _vector(size: int) -> onnx.TensorProto:
    return onnx.helper.make_tensor("plain", onnx.TensorProto.FLOAT, [size], [0.0] * size)
