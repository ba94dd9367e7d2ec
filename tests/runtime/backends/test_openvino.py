from __future__ import annotations

from pathlib import Path

import pytest

from octavo.graph import Encoder
from octavo.runtime.backends.openvino import integer_kernels
from octavo.runtime.exporting import export


def test_openvino_names_layers_that_run_in_float(tiny_encoder: Encoder, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    path = export(tiny_encoder, tmp_path / "float.onnx")
    assert integer_kernels(path, {"linear", "linear_1"}) == (0, {"linear", "linear_1"})
