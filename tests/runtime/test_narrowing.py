from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper

import octavo
from octavo.errors import SpecError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.runtime.artifacts import open_onnx
from octavo.runtime.exporting import export
from octavo.runtime.narrowing import narrowed_weights, wide_weights
from tests.runtime.conftest import TEXTS


def linear_weights(path: Path) -> list[np.ndarray]:
    tensors = onnx.load(str(path)).graph.initializer
    return [
        numpy_helper.to_array(t) for t in tensors if t.name.endswith(".weight") and "embeddings" not in t.name
    ]


def processors(path: Path) -> str:
    return {entry.key: entry.value for entry in onnx.load(str(path)).metadata_props}["processors"]


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_file_of_reduced_range_has_7_bits_and_says_where_it_runs(
    backend: str, tiny_int8: QuantizedEncoder, tmp_path: Path
) -> None:
    plain = export(tiny_int8, tmp_path / "plain.onnx", backend=backend)
    narrow = export(tiny_int8, tmp_path / "narrow.onnx", backend=backend, reduce_range=True)
    assert max(np.abs(weight.astype(int)).max() for weight in linear_weights(plain)) >= 127
    assert all(weight.min() >= -64 and weight.max() <= 63 for weight in linear_weights(narrow))
    assert processors(plain).startswith("made for x86 with VNNI and for Arm; on other x86")
    assert processors(narrow) == "any"


def test_a_file_of_reduced_range_is_what_the_narrowed_model_simulates(
    tiny_int8: QuantizedEncoder, tmp_path: Path
) -> None:
    batch = next(iter(tiny_int8.batches(list(TEXTS))))[1]
    before = tiny_int8(batch)["last_hidden_state"]
    with narrowed_weights(tiny_int8):
        expected = tiny_int8(batch)["last_hidden_state"]
    path = export(tiny_int8, tmp_path / "narrow.onnx", reduce_range=True)
    found = open_onnx(path)({name: tensor.numpy() for name, tensor in batch.items()})["last_hidden_state"]
    cosine = torch.cosine_similarity(torch.from_numpy(found), expected, dim=-1)
    assert cosine.min() > 0.9995
    assert not torch.equal(before, expected), "7 bits change the numbers"
    assert torch.equal(before, tiny_int8(batch)["last_hidden_state"]), "the model itself is left alone"
    assert wide_weights(tiny_int8)


def test_a_model_without_8_bit_weights_is_refused(tiny_encoder: Encoder, tmp_path: Path) -> None:
    for model in (tiny_encoder, octavo.quantize(tiny_encoder, octavo.recipe("w4a32"))):
        with pytest.raises(SpecError, match="no signed 8-bit weights that could be narrowed to 7 bits"):
            export(model, tmp_path / "model.onnx", reduce_range=True)
    assert not list(tmp_path.iterdir())


def test_weights_alone_run_on_any_processor(tiny_encoder: Encoder, tmp_path: Path) -> None:
    model = octavo.quantize(tiny_encoder, octavo.recipe("w8a32"))
    assert processors(export(model, tmp_path / "model.onnx")) == "any"
