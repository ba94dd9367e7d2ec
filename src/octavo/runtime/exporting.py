"""Export: a calibrated model as an artifact that a backend executes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from octavo.runtime.backends import DEFAULT, find_backend

if TYPE_CHECKING:
    from octavo.graph.encoder import Encoder


def export(
    model: Encoder,
    path: str | Path,
    *,
    backend: str = DEFAULT,
    opset: int | None = None,
    force: bool = False,
) -> Path:
    """Write a model as an artifact that computes in integers.

    For ONNX Runtime and OpenVINO that is one ONNX file. It takes `input_ids`, `attention_mask` and
    `token_type_ids` (those the model knows), int64 (batch, length) with both sizes free, and returns the
    model's outputs, the last hidden state first. Weights are stored once, as integers. A float encoder is
    written as it is.

    Arguments:
        backend: what the artifact is tuned for; both of these load the files of either.
        opset: the ONNX operator set, 21 if left out; 16-bit activations and 4-bit weights need it.
        force: replace a file that exists.
    """
    return find_backend(backend).write(model, Path(path), opset=opset, force=force)


def export_onnx(
    model: Encoder,
    path: str | Path,
    *,
    runtime: str = DEFAULT,
    opset: int = 21,
    force: bool = False,
) -> Path:
    """Write an ONNX file: the old name of `export`, which new code should use (deprecated)."""
    return export(model, path, backend=runtime, opset=opset, force=force)
