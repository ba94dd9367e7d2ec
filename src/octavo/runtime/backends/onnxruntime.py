"""ONNX Runtime on the CPU."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.runtime.backends.backend import IntegerReport
from octavo.runtime.backends.onnx_files import OnnxBackend
from octavo.runtime.backends.onnx_products import products_of_bytes, quantized_products, split_in_heads
from octavo.runtime.backends.runner import Arrays, Runner, complete
from octavo.runtime.targets import TARGETS
from octavo.runtime.translate.options import INTEGERS

if TYPE_CHECKING:
    from numpy.typing import NDArray

# What ONNX Runtime calls its integer kernels, and the float ones that a product may end in instead.
_INTEGER_KERNELS = frozenset(
    "QGemm QLinearMatMul MatMulIntegerToFloat QLinearConv MatMulInteger ConvInteger".split()
)
_FLOAT_KERNELS = frozenset("Gemm MatMul Conv FusedGemm FusedMatMul FusedConv NhwcFusedConv".split())
_ACCURACY_LEVEL = "session.qdq_matmulnbits_accuracy_level"


@dataclass(frozen=True, eq=False)
class OnnxRuntimeModel:
    """A file opened in ONNX Runtime, called as a `Runner` is."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    metadata: dict[str, str]
    session: Any

    def __call__(self, batch: Arrays) -> dict[str, NDArray[Any]]:
        results = self.session.run(None, complete(batch, self.inputs))
        return dict(zip(self.outputs, results, strict=True))


class OnnxRuntime(OnnxBackend):
    """ONNX Runtime: matrices for hidden states, and its own operator for linear layers."""

    def load(self, path: Path, threads: int | None, exact: bool) -> Runner:
        """Load a file; left to itself, ONNX Runtime rounds activations of weights-only files to 8 bits."""
        options = _session_options()
        if threads is not None:
            options.intra_op_num_threads = threads
        if exact:
            _compute_exactly(options)
        return _opened(str(path), options)

    def count_integer_kernels(self, path: Path) -> IntegerReport:
        """Count integer kernels in the optimized graph; float ones are products that still read bytes."""
        import onnx

        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "optimized.onnx"
            options = _session_options()
            options.optimized_model_filepath = str(target)
            _opened(str(path), options)
            graph = onnx.load(str(target)).graph
        # by the weight's name where there is one: fusing renames results
        floats = {weight or result for result, weight in products_of_bytes(graph, _FLOAT_KERNELS).items()}
        return IntegerReport(
            backend=self.name,
            products=len(quantized_products(path)),
            kernels=sum(node.op_type in _INTEGER_KERNELS for node in graph.node),
            floats=tuple(sorted(floats)),
        )

    def site_integers(self, path: Path, batch: Arrays) -> dict[str, NDArray[Any]]:
        """Run a file with the integers of every site as further outputs."""
        import onnx

        model = onnx.load(str(path))
        sites = [name for node in model.graph.node for name in node.output if name.endswith(INTEGERS)]
        model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in sites)
        options = _session_options()
        _compute_exactly(options)
        results = _opened(model.SerializeToString(), options)(batch)
        for name in split_in_heads(model.graph).intersection(sites):
            heads = results[name]
            results[name] = heads.swapaxes(1, 2).reshape(-1, heads.shape[1] * heads.shape[3])
        return results


def _session_options() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return options


def _compute_exactly(options: Any) -> None:
    options.add_session_config_entry(_ACCURACY_LEVEL, "1")  # float32


def _opened(file: str | bytes, options: Any) -> OnnxRuntimeModel:
    import onnxruntime

    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return OnnxRuntimeModel(
        inputs=tuple(value.name for value in session.get_inputs()),
        outputs=tuple(value.name for value in session.get_outputs()),
        metadata=dict(session.get_modelmeta().custom_metadata_map),
        session=session,
    )


ONNXRUNTIME = OnnxRuntime(
    name="onnxruntime",
    package="onnxruntime",
    extra="onnx",
    fuses=True,
    multiplies_unsigned=True,
    targets=tuple(TARGETS),
    exact_option=f"the session option {_ACCURACY_LEVEL}=1",
)
