"""A captured model as an ONNX model: inputs, the translated graph, outputs and metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torch import fx

from octavo.errors import SpecError
from octavo.graph.encoder import Encoder
from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.runtime.narrowing import multiplies_bytes, wide_weights
from octavo.runtime.targets import Target
from octavo.runtime.translate.grids import check_quantizers
from octavo.runtime.translate.joining import join_products
from octavo.runtime.translate.onnx_graph import IR_VERSIONS, OnnxGraph
from octavo.runtime.translate.options import Options
from octavo.runtime.translate.walk import write_nodes
from octavo.versions import versions

if TYPE_CHECKING:
    from onnx import ModelProto


def onnx_model(
    model: Encoder, options: Options, opset: int, target: Target, metadata: Mapping[str, str]
) -> ModelProto:
    """Return the ONNX model in memory; `metadata` is added to what is said of every model."""
    if opset not in IR_VERSIONS:
        known = f"{min(IR_VERSIONS)} to {max(IR_VERSIONS)}"
        raise SpecError(
            f"opset {opset} is not one Octavo writes; use {known} (21 for 16-bit and 4-bit integers)"
        )
    if isinstance(model, QuantizedEncoder):
        check_quantizers(model.quantizers.values(), opset)
    graph = OnnxGraph(opset, reserved=(*model.inputs, *model.output_names))
    fuses = options.fuses and _may_fuse(model)
    names = write_nodes(model.graph, graph, replace(options, fuses=fuses))
    if fuses:
        join_products(graph, names)
    for result, name in zip(names, model.output_names, strict=True):
        graph.rename(result, name)
    inputs = [_input(name) for name in model.inputs]
    outputs = [
        _output(name, node) for name, node in zip(model.output_names, _results(model.graph), strict=True)
    ]
    return graph.model(inputs, outputs, "octavo", {**_metadata(model, target), **metadata})


def _may_fuse(model: Encoder) -> bool:
    # full placement is for integer-only hardware, whose tools know nothing but the standard's operators
    return isinstance(model, QuantizedEncoder) and model.recipe.placement == "linear-inputs"


def _results(module: fx.GraphModule) -> list[fx.Node]:
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    return list(output.args[0])


def _input(name: str) -> object:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])


def _output(name: str, node: fx.Node) -> object:
    from onnx import TensorProto, helper

    shape = [
        size if isinstance(size, int) else ("batch", "length")[min(axis, 1)]
        for axis, size in enumerate(node.meta["val"].shape)
    ]
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _metadata(model: Encoder, target: Target) -> dict[str, str]:
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
        if wide_weights(model) and multiplies_bytes(model):
            described |= {"target": target.name, "processors": target.sentence}
        else:  # nothing that could saturate
            described |= {"target": "any", "processors": "any"}
    if model.head.endswith("classification"):
        described["labels"] = json.dumps(list((model.config.id2label or {}).values()))
        if getattr(model.config, "problem_type", None):
            described["problem_type"] = str(model.config.problem_type)
    return described
