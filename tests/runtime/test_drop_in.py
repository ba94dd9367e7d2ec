from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from sentence_transformers import CrossEncoder, SentenceTransformer

import octavo
from octavo.errors import MissingExtraError, ModelError
from octavo.runtime import Embedder, drop_in
from octavo.runtime.exporting import export
from tests.runtime.conftest import TEXTS
from tests.test_sentence import POOLING, TRANSFORMER, write_dense, write_modules

PROMPTS = {"prompts": {"query": "ask "}, "similarity_fn_name": "dot"}


def write_sentence_model(source: Path, folder: Path, pooling: dict[str, Any]) -> Path:
    """A sentence encoder with a dense layer, prompts and a length of 12."""
    shutil.copytree(source, folder, dirs_exist_ok=True)
    modules = [TRANSFORMER, POOLING, ("2_Dense", "Dense"), ("3_Normalize", "Normalize")]
    sizes = {"word_embedding_dimension": 32}
    write_modules(folder, modules, pooling | sizes, sentence_bert_config={"max_seq_length": 12})
    write_dense(folder, in_features=32)
    weight = np.random.default_rng(0).normal(size=(3, 32)).astype(np.float32)
    tensors = {"linear.weight": weight, "linear.bias": np.zeros(3, dtype=np.float32)}
    save_file(tensors, folder / "2_Dense" / "model.safetensors")
    (folder / "config_sentence_transformers.json").write_text(json.dumps(PROMPTS), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tiny_bert_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tiny_bert_folder()
    return write_sentence_model(source, tmp_path_factory.mktemp("sentence"), {"pooling_mode": "mean"})


@pytest.fixture(scope="module")
def file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(octavo.load(folder), tmp_path_factory.mktemp("file") / "model.onnx")


@pytest.mark.parametrize("kind", ["folder", "file", "loaded"])
def test_vectors_are_those_of_sentence_transformers_itself(kind: str, folder: Path, file: Path) -> None:
    ours = {
        "folder": lambda: octavo.sentence_transformer(folder),
        "file": lambda: octavo.sentence_transformer(file, tokenizer=folder),
        "loaded": lambda: octavo.sentence_transformer(octavo.load(folder)),
    }[kind]()
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert type(ours) is SentenceTransformer and len(ours) == 4
    assert (ours.max_seq_length, ours.get_embedding_dimension()) == (12, 3)
    for options in ({}, {"prompt_name": "query"}, {"prompt": "say "}):
        found = ours.encode(list(TEXTS), batch_size=2, **options)
        assert np.allclose(found, theirs.encode(list(TEXTS), **options), atol=1e-5)
    assert ours.encode("rain").shape == (3,)
    assert np.allclose(ours.similarity(found, found), found @ found.T, atol=1e-5)


def test_a_prompt_that_is_not_pooled_is_left_out(
    tiny_bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    pooling = {"pooling_mode": "mean", "include_prompt": False}
    folder = write_sentence_model(tiny_bert_folder(), tmp_path / "model", pooling)
    ours, theirs = octavo.sentence_transformer(folder), SentenceTransformer(str(folder), device="cpu")
    expected = theirs.encode(["rain"], prompt_name="query")
    assert np.allclose(ours.encode(["rain"], prompt_name="query"), expected, atol=1e-5)


def test_vectors_are_those_of_the_embedder(tiny_file: Path, tiny_saved: Path) -> None:
    found = octavo.sentence_transformer(tiny_file, tokenizer=tiny_saved).encode(list(TEXTS))
    assert np.allclose(found, Embedder(tiny_file, tiny_saved).encode(list(TEXTS)), atol=1e-6)
    simulated = octavo.sentence_transformer(tiny_saved)
    assert type(simulated[0].model).__name__ == "QuantizedEncoder"


def test_worker_processes_open_the_file_themselves(file: Path, folder: Path) -> None:
    model = octavo.sentence_transformer(file, tokenizer=folder, threads=1)
    expected = model.encode(list(TEXTS))
    pool = model.start_multi_process_pool(["cpu"])
    try:
        assert np.allclose(model.encode(list(TEXTS), pool=pool), expected, atol=1e-6)
    finally:
        model.stop_multi_process_pool(pool)


def test_what_cannot_be_done_says_what_to_do(folder: Path, tmp_path: Path) -> None:
    model = octavo.sentence_transformer(octavo.load(folder))
    with pytest.raises(ModelError, match=r"is in memory only, .* save or export it"):
        model[0].__reduce__()
    with pytest.raises(ModelError, match="octavo export --layout hub"):
        model.save(str(tmp_path / "saved"))
    with pytest.raises(ModelError, match="is no exported file, so backend, threads mean nothing"):
        octavo.sentence_transformer(folder, backend="openvino", threads=1)
    with pytest.raises(
        ModelError, match=r"has the head encoder, not sequence-classification; is it one for octavo"
    ):
        octavo.cross_encoder(folder)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(drop_in, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'octavo\[sentence-transformers\]'"):
        octavo.sentence_transformer(folder)


# -- cross-encoders ------------------------------------------------------------------------------------------

PAIRS = [("who barks?", "the dog barks."), ("who barks?", "a cat sleeps on the mat."), ("rain", "it rains")]
SIGMOID, IDENTITY = "torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("activation", [None, SIGMOID, IDENTITY], ids=["default", "sigmoid", "identity"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_scores_are_those_of_the_cross_encoder(
    kind: str, activation: str | None, labels: int, tiny_bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tiny_bert_folder("BertForSequenceClassification", num_labels=labels)
    if activation is not None:
        CrossEncoder(str(folder), device="cpu", activation_fn=_made(activation)).save(str(tmp_path / "ce"))
        folder = tmp_path / "ce"
    theirs = CrossEncoder(str(folder), device="cpu")
    source: Any = folder if kind == "folder" else export(octavo.load(folder), tmp_path / "model.onnx")
    ours = octavo.cross_encoder(source, tokenizer=None if kind == "folder" else folder)
    assert isinstance(ours, CrossEncoder) and ours.num_labels == labels
    assert type(ours.activation_fn) is type(theirs.activation_fn)
    assert np.allclose(ours.predict(PAIRS), theirs.predict(PAIRS), atol=1e-5)
    if labels == 1:
        found, expected = (m.rank("who barks?", [b for _, b in PAIRS]) for m in (ours, theirs))
        assert [row["corpus_id"] for row in found] == [row["corpus_id"] for row in expected]


def _made(path: str) -> torch.nn.Module:
    return getattr(torch.nn, path.rpartition(".")[2])()


def test_an_activation_function_of_other_code_is_refused(
    tiny_bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(tiny_bert_folder("BertForSequenceClassification"), tmp_path / "model"))
    file = export(octavo.load(folder), folder / "model.onnx")
    settings = {"activation_fn": "mine.Activation", "model_type": "CrossEncoder"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(
        ModelError, match=r"mine\.Activation .* is not one of torch\.nn's .*no other code is run"
    ):
        octavo.cross_encoder(file)
