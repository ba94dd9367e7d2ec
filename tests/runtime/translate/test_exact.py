"""Floats that are the same on every processor: numpy's arithmetic, which is IEEE 754's, is the oracle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from scipy.special import erf, ndtr

from octavo.runtime.artifacts import open_onnx
from octavo.runtime.exporting import export
from octavo.runtime.translate.onnx_graph import OnnxGraph
from octavo.runtime.translate.operations.exact import exact_gelu, unary
from octavo.runtime.translate.options import Options
from tests.graph import families

NUMBERS = np.linspace(-12, 12, 200_001, dtype=np.float32)


def written(write: Callable[[Any, str], str]) -> onnx.ModelProto:
    """Return a model of one function of `x`."""
    graph = OnnxGraph(21, reserved=["x"])
    t = SimpleNamespace(graph=graph, options=Options(exact_floats=True), once=graph.add)
    result = write(t, "x")
    shape = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in ("x", result)]
    made = helper.make_graph(
        graph.nodes, "function", [shape[0]], [shape[1]], list(graph.initializers.values())
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run(model: onnx.ModelProto) -> NDArray[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": NUMBERS})[0])


@pytest.mark.parametrize("name", ["gelu", "erf"])
def test_a_function_is_exact_and_every_step_of_it_is_that_of_ieee_754(name: str) -> None:
    model = written(exact_gelu if name == "gelu" else lambda t, x: unary(t, "Erf", x))
    assert {node.op_type for node in model.graph.node} <= {"Add", "Clip", "Div", "Mul"}
    found, wide = run(model), NUMBERS.astype(np.float64)
    expected = wide * ndtr(wide) if name == "gelu" else erf(wide)
    # 32 bits have steps of 1.2e-7 below a number of 2, which torch's own GELU misses by 3.7e-7
    assert (np.abs(found - expected) / np.maximum(1, np.abs(wide))).max() < 3e-7
    assert np.array_equal(found, ReferenceEvaluator(model).run(None, {"x": NUMBERS})[0])


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "silu", "relu"])
def test_files_for_browsers_leave_no_float_to_the_processor(activation: str, tmp_path: Path) -> None:
    encoder = families.fresh("bert", "encoder", hidden_act=activation, initializer_range=0.2)
    path = export(encoder, tmp_path / "model.onnx", target="web")
    nodes = onnx.load(str(path)).graph.node
    doubles = {node.output[0] for node in nodes if node.op_type == "Cast" and node.attribute[0].i == 11}
    for node in nodes:
        assert node.op_type not in ("Erf", "Gelu", "Pow")  # each processor's own
        if node.op_type in ("LayerNormalization", "Sigmoid", "Softmax", "Tanh"):
            assert set(node.input) <= doubles, node.op_type
    batch = families.batch((2, 9))
    found = open_onnx(path)({name: tensor.numpy() for name, tensor in batch.items()})
    for name, expected in encoder(batch).items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], expected.numpy(), atol=1e-5)
