"""Are integers used? What a runtime makes of a file, and which layers it still computes in float."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Container
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import ModelError
from octavo.runtime.session import require

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

_PRODUCTS = frozenset({"Gemm", "MatMul", "MatMulIntegerToFloat", "Conv"})
# What ONNX Runtime calls its integer kernels, and the float ones that a product may end in instead.
_INTEGER_KERNELS = frozenset(
    "QGemm QLinearMatMul MatMulIntegerToFloat QLinearConv MatMulInteger ConvInteger".split()
)
_FLOAT_KERNELS = frozenset("Gemm MatMul Conv FusedGemm FusedMatMul FusedConv NhwcFusedConv".split())
_BYTES = frozenset({2, 3})  # UINT8, INT8


@dataclass(frozen=True, kw_only=True)
class IntegerReport:
    """How a runtime computes the products that a file quantizes.

    Arguments:
        products: how many products read 8-bit integers on both sides in the file.
        kernels: how many integer kernels the optimized graph has.
        floats: names of products among them that run in float all the same.
    """

    runtime: str
    products: int
    kernels: int
    floats: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"floats": list(self.floats)}


def check_integers(path: str | Path, runtime: str = "onnxruntime") -> IntegerReport:
    """Report on integer kernels; a linear layer that is quantized and still runs in float is an error."""
    report = integer_report(path, runtime)
    if runtime == "onnxruntime" and report.kernels < report.products and not report.floats:
        raise ModelError(
            f"{Path(path).name}: {report.products} products are quantized, but onnxruntime has only "
            f"{report.kernels} integer kernels for them; export with another recipe or runtime"
        )
    if report.floats:
        shown = ", ".join(report.floats[:3]) + (
            f" and {len(report.floats) - 3} more" if len(report.floats) > 3 else ""
        )
        raise ModelError(
            f"{Path(path).name}: {runtime} computes {shown} in float although the file quantizes them; "
            "export with another recipe or runtime"
        )
    return report


def integer_report(path: str | Path, runtime: str = "onnxruntime") -> IntegerReport:
    """Count the integer kernels that a runtime uses for a file."""
    require(runtime)
    wanted = quantized_products(path)
    if runtime == "onnxruntime":
        kernels, floats = _onnxruntime_kernels(Path(path))
    else:
        # it fuses attention products into one kernel that has no name of theirs; linear layers stand alone
        kernels, floats = _openvino_kernels(
            Path(path), {name for name, constant in wanted.items() if constant}
        )
    return IntegerReport(runtime=runtime, products=len(wanted), kernels=kernels, floats=tuple(sorted(floats)))


def quantized_products(path: str | Path) -> dict[str, str]:
    """Results of products whose operands are both dequantized bytes, each with the weight it reads or ""."""
    import onnx

    return _quantized_products(onnx.load(str(path), load_external_data=False).graph, _PRODUCTS)


def _quantized_products(graph: GraphProto, kinds: Container[str]) -> dict[str, str]:
    makers = {result: node for node in graph.node for result in node.output}
    stored = {tensor.name: tensor.data_type for tensor in graph.initializer}
    found = {}
    for node in graph.node:
        if node.op_type == "MatMulIntegerToFloat" and node.op_type in kinds:
            found[node.output[0]] = node.input[1] if node.input[1] in stored else ""
        elif node.op_type in kinds and all(_is_bytes(name, makers, stored) for name in node.input[:2]):
            sources = (_source(name, makers) for name in node.input[:2])
            found[node.output[0]] = next((name for name in sources if name in stored), "")
    return found


def _source(name: str, makers: dict[str, NodeProto]) -> str:
    """What is dequantized behind a name, past transposes and views."""
    node = makers.get(name)
    while node is not None and node.op_type in ("Transpose", "Reshape"):
        node = makers.get(node.input[0])
    return node.input[0] if node is not None and node.op_type == "DequantizeLinear" else ""


def _is_bytes(name: str, makers: dict[str, NodeProto], stored: dict[str, int]) -> bool:
    source = _source(name, makers)
    if source in stored:
        return stored[source] in _BYTES
    node = makers.get(source)
    return node is not None and node.op_type == "QuantizeLinear" and stored.get(node.input[2]) in _BYTES


def _onnxruntime_kernels(path: Path) -> tuple[int, set[str]]:
    """Integer kernels of the optimized graph, and products left in it that read dequantized bytes."""
    import onnx
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "optimized.onnx"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = str(target)
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        graph = onnx.load(str(target)).graph
    # by the weight's name where there is one: fusing renames results
    left = {weight or result for result, weight in _quantized_products(graph, _FLOAT_KERNELS).items()}
    return sum(node.op_type in _INTEGER_KERNELS for node in graph.node), left


def _openvino_kernels(path: Path, wanted: set[str]) -> tuple[int, set[str]]:
    import openvino

    compiled = openvino.Core().compile_model(str(path), "CPU")
    kernels, done = 0, set()
    for operation in compiled.get_runtime_model().get_ordered_ops():
        notes = operation.get_rt_info()
        kind, primitive, layers = (
            _note(notes, key) for key in ("layerType", "primitiveType", "originalLayersNames")
        )
        if kind in ("FullyConnected", "MatMul", "Convolution", "Subgraph") and re.search(
            r"[iIuU]8$", primitive
        ):
            kernels += 1
            done |= {re.sub(r"/.*", "", layer) for layer in layers.split(",")}
    return kernels, wanted - done


def _note(notes: Any, key: str) -> str:
    return str(notes[key].astype(str)) if key in notes else ""
