from __future__ import annotations

from pathlib import Path

import pytest

import octavo
from octavo.graph import Encoder, QuantizedEncoder
from octavo.runtime.artifacts import open_onnx
from octavo.runtime.exporting import export
from octavo.runtime.parity import parity, site_parity
from tests.graph import families
from tests.runtime.conftest import TEXTS


def test_the_runtime_rounds_to_the_integers_of_the_simulation(
    tiny_int8: QuantizedEncoder, tiny_file: Path
) -> None:
    batch = next(iter(tiny_int8.batches(list(TEXTS))))[1]
    found = site_parity(tiny_int8, tiny_file, batch)
    assert found.equal > 0.999 and found.most_steps <= 1 and found.difference < 1e-3


def test_embeddings_agree(tiny_int8: QuantizedEncoder, tiny_file: Path) -> None:
    cosine = parity(tiny_int8, tiny_file, TEXTS).cosine
    assert cosine is not None and cosine.worst > 0.9995


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_weights_only_file_computes_the_simulation(
    backend: str, tiny_encoder: Encoder, tmp_path: Path
) -> None:
    """Left to themselves, both round its activations to 8 bits."""
    pytest.importorskip(backend)
    model = octavo.quantize(tiny_encoder, octavo.recipe("w8a32"))
    file = export(model, tmp_path / "weights.onnx", backend=backend)
    batch = next(iter(model.batches(list(TEXTS))))[1]
    run = open_onnx(file, backend, exact=True)
    found = run({name: tensor.numpy() for name, tensor in batch.items()})["last_hidden_state"]
    expected = model(batch)["last_hidden_state"].numpy()
    kept = batch["attention_mask"].bool().numpy()
    assert abs(found - expected)[kept].max() < 1e-4


@pytest.mark.parametrize("family", ["bert", "squeezebert"])
def test_float_weights_stay_float_between_rounded_activations(family: str, tmp_path: Path) -> None:
    """ONNX Runtime rounds them to 8 bits where a product and its bias stand between two grids."""
    encoder = families.captured(family, "encoder")[1]
    batch = families.batch((3, 12))
    model = octavo.quantize(encoder, octavo.recipe("w32a8"), calibration=[batch])
    found = site_parity(model, export(model, tmp_path / "model.onnx"), batch)
    assert found.equal > 0.9999


@pytest.mark.parametrize(("weights", "activations"), [(4, 8), (4, 4), (8, 6)])
def test_biases_keep_their_digits_beside_coarse_grids(
    weights: int, activations: int, tiny_encoder: Encoder, tmp_path: Path
) -> None:
    """On the grid of an accumulator of 4-bit numbers a bias would be rounded visibly."""
    recipe = octavo.Recipe(
        name="coarse",
        placement="linear-inputs",
        weights=octavo.TensorSpec(bits=weights, symmetric=True),
        activations=octavo.TensorSpec(bits=activations, estimator=octavo.AllMinMax()),
    )
    model = octavo.quantize(tiny_encoder, recipe, calibration=list(TEXTS))
    batch = next(iter(model.batches(list(TEXTS))))[1]
    found = site_parity(model, export(model, tmp_path / "model.onnx"), batch)
    assert found.equal > 0.9999 and found.difference < 1e-4


def test_steps_of_wide_grids_count_as_steps_of_8_bits(tiny_encoder: Encoder, tmp_path: Path) -> None:
    """One of 65,536 is no difference that matters."""
    wide = octavo.TensorSpec(bits=16, estimator=octavo.AllMinMax())
    weights = octavo.TensorSpec(symmetric=True)
    recipe = octavo.Recipe(name="wide", weights=weights, activations=wide)
    model = octavo.quantize(tiny_encoder, recipe, calibration=list(TEXTS))
    batch = next(iter(model.batches(list(TEXTS))))[1]
    found = site_parity(model, export(model, tmp_path / "model.onnx"), batch)
    assert found.equal < 1 and found.most_steps == 1
