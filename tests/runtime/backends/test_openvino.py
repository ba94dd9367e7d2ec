from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import octavo
from octavo.graph import Encoder, QuantizedEncoder
from octavo.runtime.backends.openvino import integer_kernels
from octavo.runtime.exporting import export
from octavo.runtime.integers import check_integers
from octavo.runtime.parity import simulation_and_file


@pytest.fixture(scope="module")
def wide_heads(
    tiny_bert_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[QuantizedEncoder, Path]:
    """A tiny int8 BERT with heads of 32, as wide as MiniLM's, and its file for OpenVINO."""
    pytest.importorskip("openvino")
    encoder = octavo.load(tiny_bert_folder(hidden_size=64, num_attention_heads=2))
    texts = ["the dog barks.", "a cat sleeps on the mat.", "rain again"]
    model = octavo.quantize(encoder, replace(octavo.recipe("int8"), passes=()), calibration=texts)
    return model, export(model, tmp_path_factory.mktemp("wide") / "wide.onnx", backend="openvino")


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


@pytest.mark.parametrize("length", [31, 32, 33])
def test_texts_as_long_as_heads_are_wide_get_the_vectors_of_the_simulation(
    length: int, wide_heads: tuple[QuantizedEncoder, Path]
) -> None:
    # with AMX, OpenVINO 2026.4 multiplies bytes of 32 x 32 probabilities and values to nonsense
    model, file = wide_heads
    tokens = torch.randint(5, 60, (2, length), generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    with simulation_and_file(model, file, "openvino", exact=False) as (simulation, exported):
        expected, found = (
            torch.from_numpy(
                artifact.run({name: tensor.numpy() for name, tensor in batch.items()})["last_hidden_state"]
            )
            for artifact in (simulation, exported)
        )
    assert torch.cosine_similarity(expected, found, dim=-1).min() > 0.99
