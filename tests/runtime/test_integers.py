from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from octavo.errors import ModelError
from octavo.graph import QuantizedEncoder
from octavo.runtime.export import export_onnx
from octavo.runtime.integers import check_integers, integer_report


def test_every_product_of_int8_is_an_integer_kernel_in_onnxruntime(tiny_file: Path) -> None:
    report = check_integers(tiny_file, "onnxruntime")
    # six linear layers and two attention products in each of two layers
    assert (report.products, report.kernels, report.floats) == (16, 16, ())


def test_every_linear_layer_of_int8_is_an_integer_kernel_in_openvino(
    tiny_int8: QuantizedEncoder, tmp_path: Path
) -> None:
    pytest.importorskip("openvino")
    path = export_onnx(tiny_int8, tmp_path / "model.onnx", runtime="openvino")
    report = check_integers(path, "openvino")
    assert report.kernels >= 12 and report.floats == ()


def test_a_layer_that_falls_back_to_float_is_named(tiny_file: Path, tmp_path: Path) -> None:
    model = onnx.load(str(tiny_file))
    # bytes on both sides of a product that takes part in another calculation first: no kernel can be fused
    gemm = next(node for node in model.graph.node if node.op_type == "Gemm")
    model.graph.node.remove(gemm)
    product = onnx.helper.make_node("MatMul", [gemm.input[0], gemm.input[1]], ["broken"])
    total = onnx.helper.make_node("Add", ["broken", gemm.input[2]], list(gemm.output))
    other = onnx.helper.make_node("Identity", [gemm.input[1]], ["seen"])
    for node in (product, total, other):
        model.graph.node.append(node)
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info("seen"))
    path = tmp_path / "broken.onnx"
    onnx.save(_sorted(model), path)
    report = integer_report(path)
    if not report.floats:
        pytest.skip("this ONNX Runtime fuses the product all the same")
    with pytest.raises(ModelError, match="onnxruntime computes broken in float although the file quantizes"):
        check_integers(path)


def _sorted(model: onnx.ModelProto) -> onnx.ModelProto:
    known = {value.name for value in model.graph.input} | {t.name for t in model.graph.initializer} | {""}
    waiting, ordered = list(model.graph.node), []
    while waiting:
        node = next(n for n in waiting if known.issuperset(n.input))
        waiting.remove(node)
        ordered.append(node)
        known.update(node.output)
    del model.graph.node[:]
    model.graph.node.extend(ordered)
    return model
