from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import octavo
from octavo.graph import Encoder, QuantizedEncoder
from octavo.methods import load

TEXTS = ("the dog barks.", "a cat sleeps on the mat.", "rain again", "who goes there?", "it rains once more")


@pytest.fixture(scope="session")
def tiny_encoder(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    """A tiny bare BERT; tests leave it as it is."""
    return load(tiny_bert_folder())


@pytest.fixture(scope="session")
def tiny_classifier(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    """A tiny BERT with three labels."""
    return load(tiny_bert_folder("BertForSequenceClassification", num_labels=3))


@pytest.fixture(scope="session")
def tiny_int8(tiny_encoder: Encoder) -> QuantizedEncoder:
    """The tiny BERT by the recipe int8."""
    return octavo.quantize(tiny_encoder, octavo.recipe("int8"), calibration=list(TEXTS))


@pytest.fixture(scope="session")
def tiny_file(tiny_int8: QuantizedEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny int8 model, exported."""
    from octavo.runtime import export

    return export(tiny_int8, tmp_path_factory.mktemp("export") / "tiny.onnx")


@pytest.fixture(scope="session")
def tiny_saved(tiny_int8: QuantizedEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny int8 model, saved."""
    return tiny_int8.save(tmp_path_factory.mktemp("saved") / "tiny-int8")
