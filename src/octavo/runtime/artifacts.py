"""What a benchmark compares: models in torch, simulated ones among them, and ONNX files in a runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelError
from octavo.runtime.session import RUNTIMES, Arrays, Runner, open_onnx

if TYPE_CHECKING:
    from octavo.graph.encoder import Encoder


@dataclass(frozen=True, kw_only=True, eq=False)
class Artifact:
    """One thing to measure.

    Arguments:
        name: how it is called in tables, `minilm-int8.onnx (openvino)`.
        kind: `float`, `integer`, or `simulated`: rounded floats, whose latency says nothing.
        size: bytes of its weights on disk, None if they are not on this disk.
        encoder: the captured model, None for an ONNX file.
    """

    name: str
    kind: str
    runtime: str
    size: int | None
    run: Runner
    encoder: Encoder | None = None


def open_artifact(given: str, runtime: str | None = None, threads: int | None = None) -> Artifact:
    """Open a model as `octavo.load` takes it, an ONNX file (or `FILE@openvino`), or OpenVINO's XML."""
    path, _, asked = (
        given.rpartition("@") if given.endswith(tuple(f"@{name}" for name in RUNTIMES)) else (given, "", "")
    )
    if path.endswith(".xml"):
        return _openvino_artifact(Path(path), threads)
    if path.endswith(".onnx"):
        return _onnx_artifact(Path(path), asked or runtime or "onnxruntime", threads)
    if asked:
        raise ModelError(f"{given}: only ONNX files run in {asked}; export the model first")
    return _torch_artifact(given)


def _onnx_artifact(path: Path, runtime: str, threads: int | None) -> Artifact:
    run = open_onnx(path, runtime, threads)
    kind = "integer" if _has_integers(path) else "float"
    return Artifact(
        name=f"{path.name} ({runtime})", kind=kind, runtime=runtime, size=path.stat().st_size, run=run
    )


def _openvino_artifact(path: Path, threads: int | None) -> Artifact:
    run = open_onnx(path, "openvino", threads)
    kind = "integer" if "FakeQuantize" in path.read_text(encoding="utf-8") else "float"
    weights = path.with_suffix(".bin")
    size = weights.stat().st_size if weights.is_file() else None
    return Artifact(name=f"{path.name} (openvino)", kind=kind, runtime="openvino", size=size, run=run)


def _has_integers(path: Path) -> bool:
    import onnx

    nodes = onnx.load(str(path), load_external_data=False).graph.node
    return any(node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul") for node in nodes)


def _torch_artifact(given: str) -> Artifact:
    from octavo.graph import QuantizedEncoder
    from octavo.graph.capture.source import locate
    from octavo.methods import load

    encoder = load(given)
    kind = "simulated" if isinstance(encoder, QuantizedEncoder) else "float"
    folder = Path(locate(given))
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) if folder.is_dir() else None
    return Artifact(
        name=given, kind=kind, runtime="torch", size=size, run=torch_runner(encoder), encoder=encoder
    )


def torch_runner(encoder: Encoder) -> Runner:
    """Run a captured model on arrays."""
    import torch

    def run(batch: Arrays) -> dict[str, NDArray[Any]]:
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in batch.items()}
        return {name: tensor.cpu().numpy() for name, tensor in encoder(tensors).items()}

    return run
