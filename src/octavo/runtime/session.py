"""ONNX files in ONNX Runtime and OpenVINO, behind one small interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from octavo.errors import MissingExtraError, ModelError, did_you_mean

RuntimeName = Literal["onnxruntime", "openvino"]
RUNTIMES: dict[str, str] = {"onnxruntime": "onnx", "openvino": "openvino"}
"""Every runtime and the extra that installs it."""

Arrays = Mapping[str, NDArray[Any]]


class Runner(Protocol):
    """Something that turns token ids (batch, length) into outputs by name."""

    def __call__(self, batch: Arrays) -> dict[str, NDArray[Any]]: ...


@dataclass(frozen=True, eq=False)
class _Opened:
    """A file opened in a runtime."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    session: Any
    metadata: dict[str, str]


class OnnxRuntimeModel(_Opened):
    """A file opened in ONNX Runtime."""

    def __call__(self, batch: Arrays) -> dict[str, NDArray[Any]]:
        results = self.session.run(None, feed(batch, self.inputs))
        return dict(zip(self.outputs, results, strict=True))


class OpenVinoModel(_Opened):
    """A file opened in OpenVINO."""

    def __call__(self, batch: Arrays) -> dict[str, NDArray[Any]]:
        results = self.session.infer(feed(batch, self.inputs))
        return {name: np.array(results[place]) for place, name in enumerate(self.outputs)}


def open_onnx(
    path: str | Path, runtime: str = "onnxruntime", threads: int | None = None, *, exact: bool = False
) -> Runner:
    """Open an ONNX file for running.

    Arguments:
        runtime: `onnxruntime` or `openvino`.
        threads: how many cores to use; the runtime's choice if left out.
        exact: compute what the file says: left to itself, ONNX Runtime rounds the activations of weights-only
            files to 8 bits, for speed.
    """
    require(runtime)
    file = Path(path)
    if not file.is_file():
        raise ModelError(f"{file} is not a file; give an ONNX file")
    try:
        if runtime == "onnxruntime":
            return _open_onnxruntime(file, threads, exact)
        return _open_openvino(file, threads)
    except Exception as error:  # each runtime raises its own, down to RuntimeError
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ModelError(f"{runtime} cannot open {file}: {reason.strip()}") from error


def require(runtime: str) -> None:
    """Refuse an unknown runtime, or one that is not installed, naming the command that installs it."""
    if runtime not in RUNTIMES:
        hint = did_you_mean(runtime, RUNTIMES) or "; use onnxruntime or openvino"
        raise ModelError(f"unknown runtime {runtime!r}{hint}")
    if find_spec(runtime) is None:
        raise MissingExtraError(RUNTIMES[runtime], f"Running files in {runtime}")


def feed(batch: Arrays, inputs: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """What a file takes, int64: a missing mask is all ones, missing token types are all zeros."""
    ids = np.asarray(batch["input_ids"])
    fill = {"attention_mask": np.ones_like, "token_type_ids": np.zeros_like}
    return {
        n: np.asarray(batch[n] if n in batch else fill[n](ids)).astype(np.int64, copy=False) for n in inputs
    }


def _open_onnxruntime(file: Path, threads: int | None, exact: bool) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    if exact:
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")  # float32
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return OnnxRuntimeModel(
        inputs=tuple(value.name for value in session.get_inputs()),
        outputs=tuple(value.name for value in session.get_outputs()),
        session=session,
        metadata=dict(session.get_modelmeta().custom_metadata_map),
    )


def _open_openvino(file: Path, threads: int | None) -> Runner:
    import openvino

    settings = {} if threads is None else {"INFERENCE_NUM_THREADS": threads}
    compiled = openvino.Core().compile_model(str(file), "CPU", settings)
    return OpenVinoModel(
        inputs=tuple(value.get_any_name() for value in compiled.inputs),
        outputs=tuple(value.get_any_name() for value in compiled.outputs),
        session=compiled.create_infer_request(),
        metadata={},
    )
