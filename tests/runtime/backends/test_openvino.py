from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import octavo
from octavo.graph import Encoder
from octavo.runtime.backends.openvino import integer_kernels
from octavo.runtime.exporting import export
from octavo.runtime.integers import check_integers


def test_openvino_names_layers_that_run_in_float(tiny_encoder: Encoder, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    path = export(tiny_encoder, tmp_path / "float.onnx")
    assert integer_kernels(path, {"linear", "linear_1"}) == (0, {"linear", "linear_1"})


@pytest.mark.parametrize("head", ["BertForSequenceClassification", "BertForTokenClassification"])
def test_a_layer_whose_bias_is_zero_is_seen_to_run_in_integers(
    head: str, tiny_bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    pytest.importorskip("openvino")
    recipe = replace(octavo.recipe("int8"), passes=())
    # biases of a fresh model are zero, and nothing corrects them
    folder = tiny_bert_folder(head, num_labels=3)
    model = octavo.quantize(octavo.load(folder), recipe, calibration=["the dog barks.", "rain again"])
    file = export(model, tmp_path / "zero.onnx", backend="openvino")
    report = check_integers(file, "openvino")
    assert report.products and not report.floats
