from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import octavo
from octavo.errors import DataError, ModelError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.methods import load
from octavo.runtime import export_onnx
from octavo.runtime.embedder import Embedder
from tests.runtime.conftest import TEXTS
from tests.test_sentence import POOLING, TRANSFORMER, write_dense, write_modules


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


@pytest.fixture(scope="module")
def sentence_int8(
    tiny_bert_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> QuantizedEncoder:
    """A sentence encoder that pools by the maximum, cuts at 6 tokens, and ends in a dense layer."""
    folder = tmp_path_factory.mktemp("sentence")
    shutil.copytree(tiny_bert_folder(), folder, dirs_exist_ok=True)
    modules = [TRANSFORMER, POOLING, ("2_Dense", "Dense")]
    write_modules(folder, modules, {"pooling_mode": "max"}, sentence_bert_config={"max_seq_length": 6})
    write_dense(folder, in_features=32)
    weight = np.random.default_rng(0).normal(size=(3, 32)).astype(np.float32)
    bias = np.zeros(3, dtype=np.float32)
    save_file({"linear.weight": weight, "linear.bias": bias}, folder / "2_Dense" / "model.safetensors")
    with pytest.warns(octavo.OctavoWarning, match="were truncated"):
        return octavo.quantize(load(folder), octavo.recipe("int8"), calibration=list(TEXTS))


def simulated(model: Encoder, text: str) -> np.ndarray:
    (_, batch), *_ = list(model.batches([text]))
    return model.embed(batch, model(batch))[0].numpy()


@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_pooling_length_and_dense_layers_are_those_of_the_model(
    sentence_int8: QuantizedEncoder, tmp_path: Path, runtime: str
) -> None:
    file = export_onnx(sentence_int8, tmp_path / "sentence.onnx")
    embedder = Embedder(file, tokenizer=sentence_int8.save(tmp_path / "saved"), backend=runtime)
    assert (embedder.pooling, embedder.max_length) == ("max", 6)
    found = embedder.encode(["rain", "up it"])
    assert found.shape == (2, 3) and not np.allclose(np.linalg.norm(found, axis=-1), 1, atol=1e-3)
    assert np.allclose(found[0], simulated(sentence_int8, "rain"), atol=2e-2)


def test_a_saved_sentence_encoder_is_loaded_as_it_was(
    sentence_int8: QuantizedEncoder, tmp_path: Path
) -> None:
    folder = sentence_int8.save(tmp_path / "saved")
    for name, content in sentence_int8.sentence.files.items():
        assert (folder / name).read_bytes() == content
    assert {"modules.json", "1_Pooling/config.json", "2_Dense/model.safetensors"} <= set(
        sentence_int8.sentence.files
    )
    again = load(folder)
    assert (again.pooling, again.text_length, again.sentence.step_names) == ("max", 6, ("Dense",))
    assert np.array_equal(simulated(again, "rain"), simulated(sentence_int8, "rain"))


def test_a_dense_layer_that_the_folder_lacks_is_named(
    sentence_int8: QuantizedEncoder, tmp_path: Path
) -> None:
    file = export_onnx(sentence_int8, tmp_path / "sentence.onnx")
    folder = sentence_int8.save(tmp_path / "saved")
    (folder / "modules.json").unlink()
    with pytest.raises(
        ModelError, match="belongs to a model with the modules Dense after its pooling, which"
    ):
        Embedder(file, tokenizer=folder)


def test_the_files_own_metadata_decides_and_arguments_override_it(
    tiny_file: Path, tiny_saved: Path, tmp_path: Path
) -> None:
    assert Embedder(tiny_file, tokenizer=tiny_saved).max_length == 64
    chosen = Embedder(tiny_file, tokenizer=tiny_saved, pooling="cls", max_length=5)
    assert (chosen.pooling, chosen.max_length) == ("cls", 5)
    folder = tmp_path / "other"  # whose pooling the file does not have
    shutil.copytree(tiny_saved, folder)
    write_modules(folder, [TRANSFORMER, POOLING], {"pooling_mode": "max"})
    other = Embedder(tiny_file, tokenizer=folder)
    assert (other.pooling, other.modules.step_names) == ("mean", ("Normalize",))


def test_a_file_with_a_head_makes_no_embeddings(
    tiny_classifier: Encoder, tiny_saved: Path, tmp_path: Path
) -> None:
    file = export_onnx(tiny_classifier, tmp_path / "classifier.onnx")
    with pytest.raises(ModelError, match="has a sequence-classification head; only a bare encoder makes"):
        Embedder(file, tokenizer=tiny_saved)


def test_an_unknown_pooling_is_refused(tiny_file: Path, tiny_saved: Path) -> None:
    with pytest.raises(ModelError, match="unknown pooling 'maxx'; did you mean 'max'"):
        Embedder(tiny_file, tokenizer=tiny_saved, pooling="maxx")  # type: ignore[arg-type]
