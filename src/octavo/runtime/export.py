"""Export: a calibrated model as one ONNX file with QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from torch import fx

from octavo.errors import MissingExtraError, SpecError, did_you_mean
from octavo.files import check_output, write_file
from octavo.graph.encoder import Encoder
from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.runtime.folding import foldable_factors
from octavo.runtime.grids import check_quantizers
from octavo.runtime.onnx_graph import IR_VERSIONS, OnnxGraph
from octavo.runtime.translate import Translator, Value
from octavo.versions import versions

if TYPE_CHECKING:
    from onnx import ModelProto

MOST_BYTES = 2**31
"""One file holds everything: no external data, whose paths would have to be trusted."""


Runtime = Literal["onnxruntime", "openvino"]
LEFT_OUT: dict[Runtime, frozenset[str]] = {
    "onnxruntime": frozenset(),
    # its attention kernel multiplies queries and keys in 16 bits faster than it gets 8-bit ones into place
    "openvino": frozenset({"query", "key"}),
}
"""Roles whose quantizers a runtime is faster without; the result is closer to the float model."""


def export_onnx(
    model: Encoder,
    path: str | Path,
    *,
    runtime: Runtime = "onnxruntime",
    opset: int = 21,
    force: bool = False,
) -> Path:
    """Write a model as an ONNX file that integer runtimes execute.

    The file takes `input_ids`, `attention_mask` and `token_type_ids` (those the model knows), int64
    (batch, length) with both sizes free, and returns the model's outputs, the last hidden state first.
    Weights are stored once, as integers. A float encoder is written as it is.

    Arguments:
        runtime: what the file is tuned for; either runtime loads either file.
        opset: the ONNX operator set; 16-bit activations and 4-bit weights need 21.
        force: replace a file that exists.
    """
    from octavo.runtime.check import check_file

    target = Path(path)
    require_onnx()
    check_output(target, force)
    proto = onnx_model(model, runtime=runtime, opset=opset)
    if proto.ByteSize() >= MOST_BYTES:
        raise SpecError(
            f"{model.name} takes {proto.ByteSize()} bytes, ONNX files hold less than 2 GiB; quantize it first"
        )
    with write_file(target, force) as draft:
        draft.write_bytes(proto.SerializeToString())
        check_file(draft)
    return target


def onnx_model(model: Encoder, *, runtime: Runtime = "onnxruntime", opset: int = 21) -> ModelProto:
    """The ONNX model in memory."""
    require_onnx()
    if runtime not in LEFT_OUT:
        raise SpecError(
            f"unknown runtime {runtime!r}{did_you_mean(runtime, LEFT_OUT) or '; use onnxruntime or openvino'}"
        )
    if opset not in IR_VERSIONS:
        known = f"{min(IR_VERSIONS)} to {max(IR_VERSIONS)}"
        raise SpecError(
            f"opset {opset} is not one Octavo writes; use {known} (21 for 16-bit and 4-bit integers)"
        )
    if isinstance(model, QuantizedEncoder):
        check_quantizers(model.quantizers.values(), opset)
    graph = OnnxGraph(opset, reserved=(*model.inputs, *model.output_names))
    names = _translate(model, graph, runtime)
    for result, name in zip(names, model.output_names, strict=True):
        graph.rename(result, name)
    inputs = [_input(name) for name in model.inputs]
    outputs = [
        _output(name, node) for name, node in zip(model.output_names, _results(model.graph), strict=True)
    ]
    return graph.model(inputs, outputs, "octavo", _metadata(model) | {"runtime": runtime})


def require_onnx() -> None:
    """Say which extra is missing, before any work is done."""
    if find_spec("onnx") is None:
        raise MissingExtraError("onnx", "ONNX export")


def _translate(model: Encoder, graph: OnnxGraph, runtime: Runtime) -> list[str]:
    from octavo.runtime.masks import light_masks

    translator = Translator(model.graph, graph)
    factors, replaced = foldable_factors(model.graph)
    translator.factors = factors
    translator.replaced = replaced
    translator.left_out = LEFT_OUT[runtime]
    translator.flattens = runtime == "onnxruntime"
    # full placement is for integer-only hardware, whose tools know nothing but the standard's operators
    translator.fuses = (
        runtime == "onnxruntime"
        and isinstance(model, QuantizedEncoder)
        and model.recipe.placement == "linear-inputs"
    )
    known: dict[fx.Node, Value] = light_masks(translator)
    return translator.run(known)


def _results(module: fx.GraphModule) -> list[fx.Node]:
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    return list(output.args[0])


def _input(name: str) -> object:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])


def _output(name: str, node: fx.Node) -> object:
    from onnx import TensorProto, helper

    shape = [
        size if isinstance(size, int) else ("batch", "length")[min(place, 1)]
        for place, size in enumerate(node.meta["val"].shape)
    ]
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _metadata(model: Encoder) -> dict[str, str]:
    described = {
        "octavo": versions()["octavo"],
        "model": Path(model.name).name,
        "head": model.head,
        "max_length": str(model.text_length),
    }
    if model.head == "encoder":
        described |= {"pooling": model.pooling, "modules": ",".join(model.sentence.step_names)}
    if isinstance(model, QuantizedEncoder):
        described["recipe"] = model.recipe.name
    return described
