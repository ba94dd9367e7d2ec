"""ONNX's own checker."""

from __future__ import annotations

from pathlib import Path

from octavo.errors import ModelError


def check_file(path: Path) -> None:
    """Let ONNX check a file, shapes included; a complaint is an error."""
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ModelError(f"{path.name}: ONNX's checker refuses the file: {error}") from error
