from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.errors import DataError, ModelError
from octavo.graph import QuantizedEncoder
from octavo.runtime.embedder import Embedder
from tests.runtime.conftest import TEXTS


def test_embeddings_are_those_of_the_simulation_in_the_order_of_the_texts(
    tiny_int8: QuantizedEncoder, tiny_file: Path, tiny_saved: Path
) -> None:
    found = Embedder(tiny_file, tokenizer=tiny_saved, max_length=64).encode(list(TEXTS), batch_size=2)
    for text, vector in zip(TEXTS, found, strict=True):
        _, batch = next(iter(tiny_int8.batches([text])))
        assert float(tiny_int8.embed(batch, tiny_int8(batch))[0].numpy() @ vector) > 0.999


def test_one_text_gives_one_vector(tiny_file: Path, tiny_saved: Path) -> None:
    vector = Embedder(tiny_file, tokenizer=tiny_saved, max_length=64).encode("rain")
    assert vector.shape == (32,) and np.isclose(np.linalg.norm(vector), 1)


def test_no_texts_and_no_tokenizer_are_refused(tiny_file: Path, tiny_saved: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no texts were given"):
        Embedder(tiny_file, tokenizer=tiny_saved).encode([])
    with pytest.raises(ModelError, match="has no tokenizer"):
        Embedder(tiny_file, tokenizer=tmp_path)
