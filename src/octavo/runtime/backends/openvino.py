"""OpenVINO on the CPU."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.runtime.backends.backend import IntegerReport
from octavo.runtime.backends.onnx_files import OnnxBackend
from octavo.runtime.backends.onnx_products import other_names, quantized_products
from octavo.runtime.backends.runner import Arrays, Runner, complete

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GROUP_SIZE = "DYNAMIC_QUANTIZATION_GROUP_SIZE"
_METADATA = "octavo"
_OWN_FORMAT = ".xml"  # the graph; the weights stand beside it in a file that ends in .bin


@dataclass(frozen=True, eq=False)
class OpenVinoModel:
    """A file opened in OpenVINO, called as a `Runner` is."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    metadata: dict[str, str]
    request: Any

    def __call__(self, batch: Arrays) -> dict[str, NDArray[Any]]:
        import numpy as np

        results = self.request.infer(complete(batch, self.inputs))
        return {name: np.array(results[index]) for index, name in enumerate(self.outputs)}


class OpenVino(OnnxBackend):
    """OpenVINO: stacks for hidden states, standard operators; it also runs files of its own format."""

    def load(self, path: Path, threads: int | None, exact: bool) -> Runner:
        """Load a file; left to itself, OpenVINO rounds what is float to 16 bits where the processor can.

        It also rounds the activations of weights-only files to 8 bits.
        """
        import openvino

        settings: dict[str, Any] = {} if threads is None else {"INFERENCE_NUM_THREADS": threads}
        if exact:
            settings |= {"INFERENCE_PRECISION_HINT": "f32", _GROUP_SIZE: 0}
        core = openvino.Core()
        model = core.read_model(str(path))
        compiled = core.compile_model(model, "CPU", settings)
        return OpenVinoModel(
            inputs=tuple(value.get_any_name() for value in compiled.inputs),
            outputs=tuple(map(_output_name, compiled.outputs)),
            metadata=_metadata(model),
            request=compiled.create_infer_request(),
        )

    def holds_integers(self, path: Path) -> bool:
        """Return whether a file has nodes that quantize."""
        if path.suffix == _OWN_FORMAT:
            return "FakeQuantize" in path.read_text(encoding="utf-8")
        return super().holds_integers(path)

    def size(self, path: Path) -> int | None:
        """Return the bytes of an ONNX file, or of the weights beside a file of OpenVINO's own."""
        if path.suffix != _OWN_FORMAT:
            return super().size(path)
        weights = path.with_suffix(".bin")
        return weights.stat().st_size if weights.is_file() else None

    def count_integer_kernels(self, path: Path) -> IntegerReport:
        """Count the kernels of bytes in the compiled model; linear layers without one run in float."""
        products = quantized_products(path)
        # products of attention are fused into kernels that have no name of theirs; linear layers stand alone
        kernels, floats = integer_kernels(path, {name for name, weight in products.items() if weight})
        return IntegerReport(
            backend=self.name, products=len(products), kernels=kernels, floats=tuple(sorted(floats))
        )


def save_own_format(file: Path, path: Path) -> Path:
    """Write an ONNX file in OpenVINO's own format, an .xml and a .bin beside it, with what it says of itself.

    Weights stay the integers that they are, and what is float stays so in 32 bits.
    """
    import onnx
    import openvino

    model = openvino.convert_model(str(file))
    for entry in onnx.load(str(file), load_external_data=False).metadata_props:
        model.set_rt_info(entry.value, [_METADATA, entry.key])
    openvino.save_model(model, str(path), compress_to_fp16=False)
    return path


def _metadata(model: Any) -> dict[str, str]:
    """What a file of OpenVINO's own format says of itself; from an ONNX file, OpenVINO takes nothing over."""
    if not model.has_rt_info(_METADATA):
        return {}
    return {key: str(value) for key, value in model.get_rt_info(_METADATA).value.items()}


def _output_name(output: Any) -> str:
    """Return the name that the file gives an output; behind it may stand others for the same tensor."""
    name, _, _ = str(output.get_node().get_friendly_name()).rpartition("/sink_port_")
    return name if name in output.get_names() else str(output.get_any_name())


def integer_kernels(path: Path, products: Collection[str]) -> tuple[int, set[str]]:
    """Return how many kernels of the compiled model compute in bytes, and the products that none computes."""
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
    # a product that nothing is added to is known by the output's name alone
    done |= {result for name, result in other_names(path).items() if name in done}
    return kernels, set(products) - done


def _note(notes: Any, key: str) -> str:
    return str(notes[key].astype(str)) if key in notes else ""


OPENVINO = OpenVino(
    name="openvino",
    package="openvino",
    extra="openvino",
    endings=(".onnx", _OWN_FORMAT),
    # Its attention kernel multiplies queries and keys in 16 bits faster than it gets 8-bit ones into place.
    # Bytes of probabilities and values it multiplies no faster, and on processors with AMX to nonsense where
    # texts are as long as heads are wide (32; OpenVINO 2026.4).
    left_out=frozenset({"query", "key", "value", "attention_probs"}),
    kernel_for_each_product=False,
    flattens=False,
    targets=("vnni", "avx2"),
    exact_option=f"{_GROUP_SIZE}=0",
)
