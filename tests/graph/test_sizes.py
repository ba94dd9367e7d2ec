from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.graph import Encoder, attach
from octavo.graph.sizes import float_bytes, folder_bytes, sites_by_bits
from octavo.methods import load
from octavo.spec import Override, Recipe, TensorSpec


@pytest.fixture(scope="module")
def encoder(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    return load(tiny_bert_folder())


def test_float_bytes_are_those_of_the_parameters_that_are_read(encoder: Encoder) -> None:
    vocabulary, positions, width, inner = 61, 64, 32, 64
    embeddings = (vocabulary + positions + 2) * width + 2 * width
    attention = 4 * (width * width + width) + 2 * width
    feed_forward = 2 * width * inner + inner + width + 2 * width
    # A bare encoder returns hidden states: the pooler is not read.
    assert float_bytes(encoder) == 4 * (embeddings + 2 * (attention + feed_forward))


def test_tied_weights_count_once(tiny_bert_folder: Callable[..., Path]) -> None:
    masked_lm = load(tiny_bert_folder("BertForMaskedLM"))
    file = tiny_bert_folder("BertForMaskedLM") / "model.safetensors"
    assert float_bytes(masked_lm) == pytest.approx(file.stat().st_size, rel=0.05)


def test_sites_by_bits_counts_the_placement(encoder: Encoder) -> None:
    wide = Override(roles=("ffn_input",), bits=16)
    off = Override(roles=("query",), off=True)
    recipe = Recipe(name="mixed", weights=TensorSpec(bits=4), activations=TensorSpec(), overrides=(wide, off))
    model = attach(encoder, recipe)
    assert sites_by_bits(model, "activation") == {8: 25, 16: 2, None: 2}
    assert sites_by_bits(model, "weight") == {4: len(encoder.weight_sites)}


def test_folder_bytes_counts_files_below(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a").write_bytes(b"123")
    (tmp_path / "b").write_bytes(b"4567")
    assert folder_bytes(tmp_path) == 7
