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


def test_an_int8_file_is_as_good_in_webassembly_as_in_python(
    node_modules: Path, models: Path, tmp_path: Path
) -> None:
    folder = models / "minilm"
    file = folder / "onnx" / "model_quantized.onnx"
    found = run_node("runtime.mjs", node_modules, folder, file, out=tmp_path / "out.json")
    # norms in 64 bits agree; last bits of softmax and GELU differ, and a number that rounds the other
    # way moves what follows: docs/deploy.md, Parity
    ours = embed(models, "model_quantized.onnx")
    same = cosines(found, ours)
    assert same.mean() > 0.9999 and same.min() > 0.999
    exact = embed(models, "model.onnx")
    assert abs(cosines(found, exact).mean() - cosines(ours, exact).mean()) < 2e-4
    assert np.array(found).shape == ours.shape
