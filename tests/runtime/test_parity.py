from __future__ import annotations

from pathlib import Path

import octavo
from octavo.graph import Encoder, QuantizedEncoder
from octavo.runtime.exporting import export
from octavo.runtime.parity import parity, site_parity
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


def test_a_weights_only_file_computes_the_simulation(tiny_encoder: Encoder, tmp_path: Path) -> None:
    model = octavo.quantize(tiny_encoder, octavo.recipe("w8a32"))
    file = export(model, tmp_path / "weights.onnx")
    cosine = parity(model, file, TEXTS).cosine
    assert cosine is not None and cosine.worst > 0.99999
