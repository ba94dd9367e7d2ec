"""Exported files in Node: transformers.js, and onnxruntime-web in WebAssembly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.browser.conftest import cosines, embed, run_node

pytestmark = pytest.mark.browser


def test_transformers_js_gives_the_vectors_of_python(
    node_modules: Path, models: Path, tmp_path: Path
) -> None:
    found = run_node("transformers.mjs", node_modules, models, "minilm", out=tmp_path / "out.json")
    assert cosines(found, embed(models, "model_quantized.onnx")).min() > 0.9999


def test_a_float_file_gives_the_vectors_of_python_in_webassembly(
    node_modules: Path, models: Path, tmp_path: Path
) -> None:
    folder = models / "minilm"
    found = run_node(
        "runtime.mjs", node_modules, folder, folder / "onnx" / "model.onnx", out=tmp_path / "out.json"
    )
    assert cosines(found, embed(models, "model.onnx")).min() > 0.99999


def test_an_int8_file_gives_the_vectors_of_python_in_webassembly(
    node_modules: Path, models: Path, tmp_path: Path
) -> None:
    folder = models / "minilm"
    file = folder / "onnx" / "model_quantized.onnx"
    found = run_node("runtime.mjs", node_modules, folder, file, out=tmp_path / "out.json")
    ours = embed(models, "model_quantized.onnx")
    assert np.array(found).shape == ours.shape
    # every integer is the same: what is left is the mean, which JavaScript takes in 32 bits
    assert cosines(found, ours).min() > 0.999999
