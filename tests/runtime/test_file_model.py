from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import octavo
from octavo.errors import ModelError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.runtime.exporting import export
from octavo.runtime.file_model import FileModel, find_tokenizer_folder, open_model
from octavo.tasks import compare
from octavo.tasks.model import Model
from tests.runtime.conftest import TEXTS


def protocol(model: Model) -> Model:
    """Let the type checker say that a model has what evaluation asks for."""
    return model


def test_a_file_is_evaluated_as_a_model_is(
    tiny_encoder: Encoder, tiny_int8: QuantizedEncoder, tiny_file: Path, tiny_saved: Path
) -> None:
    model = protocol(open_model(tiny_file, tiny_saved))
    file, simulation = (compare(m, tiny_encoder, list(TEXTS)).fidelity for m in (model, tiny_int8))
    assert file is not None and file.cosine is not None
    assert simulation is not None and simulation.cosine is not None
    assert file.cosine.mean == pytest.approx(simulation.cosine.mean, abs=1e-3)


def test_a_float_file_answers_as_its_model_does(
    tiny_bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tiny_bert_folder("BertForSequenceClassification", num_labels=3)
    encoder = octavo.load(folder)
    model = open_model(export(encoder, tmp_path / "model.onnx"), folder)
    assert (model.head, model.config.num_labels, model.output_names) == (encoder.head, 3, ("logits",))
    assert model.inputs == encoder.inputs and model.max_length == encoder.text_length
    ((positions, batch),) = model.batches(list(TEXTS))
    assert sorted(positions) == list(range(len(TEXTS)))
    torch.testing.assert_close(model(batch)["logits"], encoder(batch)["logits"], atol=1e-4, rtol=1e-4)
    with pytest.raises(ModelError, match="only a bare encoder makes embeddings"):
        model.embed(batch, model(batch))


def test_embeddings_are_those_of_the_model(tiny_encoder: Encoder, tiny_saved: Path, tmp_path: Path) -> None:
    model = open_model(export(tiny_encoder, tmp_path / "model.onnx"), tiny_saved)
    _, batch = next(model.batches(list(TEXTS)))
    expected = tiny_encoder.embed(batch, tiny_encoder(batch))
    torch.testing.assert_close(model.embed(batch, model(batch)), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("place", ["", "model", "onnx"], ids=["beside", "same name", "hub"])
def test_the_tokenizer_is_found_where_it_usually_lies(
    place: str, tiny_file: Path, tiny_saved: Path, tmp_path: Path
) -> None:
    home = tmp_path / "onnx" if place == "onnx" else tmp_path
    home.mkdir(exist_ok=True)
    file = Path(shutil.copy(tiny_file, home / "model.onnx"))
    assert find_tokenizer_folder(file) is None
    folder = tmp_path / "model" if place == "model" else tmp_path
    folder.mkdir(exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tiny_saved / name, folder / name)
    assert find_tokenizer_folder(file) == folder
    assert isinstance(open_model(file), FileModel)


def test_a_file_without_a_tokenizer_says_what_to_do(tiny_file: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer beside it, nor in tiny/.*--tokenizer DIR"):
        open_model(tiny_file)


def test_a_file_that_is_not_there_is_told_before_its_tokenizer() -> None:
    with pytest.raises(ModelError, match=r"nowhere\.onnx is not a file; give one that ends in \.onnx"):
        open_model("nowhere.onnx")
