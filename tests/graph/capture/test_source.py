from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from octavo.errors import ModelError, OctavoWarning
from octavo.graph import Head
from octavo.graph.capture.source import locate, make_encoder
from octavo.methods import load
from tests.graph import families
from tests.test_sentence import POOLING, TRANSFORMER, write_modules


def checkpoint(folder: Path, family: str = "bert", head: Head = "sequence-classification") -> Path:
    """A folder as Hugging Face writes it."""
    network: Any = families.network(family, head)
    network.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("family", "head", "outputs"),
    [
        ("bert", "encoder", ("last_hidden_state",)),
        ("bert", "sequence-classification", ("logits",)),
        ("distilbert", "question-answering", ("start_logits", "end_logits")),
    ],
)
def test_the_head_is_that_of_the_checkpoint(
    family: str, head: Head, outputs: tuple[str, ...], tmp_path: Path
) -> None:
    encoder = load(checkpoint(tmp_path / "model", family, head))
    assert (encoder.head, encoder.output_names) == (head, outputs)
    batch = families.batch((2, 6))
    with torch.no_grad():
        expected = families.network(family, head)(**batch)
    assert all(torch.allclose(encoder(batch)[name], expected[name], atol=1e-6) for name in outputs)


def test_another_head_and_its_labels_can_be_asked_for(tmp_path: Path) -> None:
    encoder = load(checkpoint(tmp_path / "model", head="encoder"), head="sequence-classification", labels=5)
    assert encoder(families.batch((2, 6)))["logits"].shape == (2, 5)


def test_a_classifier_gets_a_new_head_for_other_labels(tmp_path: Path) -> None:
    encoder = load(checkpoint(tmp_path / "model"), head="sequence-classification", labels=5)
    assert encoder(families.batch((2, 6)))["logits"].shape == (2, 5)


def test_weights_of_another_shape_are_named(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    name = "bert.encoder.layer.1.output.dense.weight"
    tensors |= {name: torch.ones(32, 10), "classifier.bias": torch.ones(7)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    match = rf"do not fit together: {name} has the shape \[32, 10\], not \[32, 64\], and 1 more differ; give"
    with pytest.raises(ModelError, match=match):
        load(folder)


def change_tensors(folder: Path, drop: tuple[str, ...] = (), add: tuple[str, ...] = ()) -> Path:
    """The checkpoint without tensors whose names begin so, and with others."""
    tensors = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if not name.startswith(drop or ("-",))}
    kept |= {name: torch.ones(2) for name in add}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_weights_that_the_checkpoint_lacks_are_named(tmp_path: Path) -> None:
    lost = "bert.encoder.layer.0.output.dense."
    with pytest.warns(
        OctavoWarning,
        match=rf"the checkpoint lacks 2 weights, random now: {lost}bias, {lost}weight; give a complete",
    ):
        assert load(change_tensors(checkpoint(tmp_path / "model"), (lost,))).head == "sequence-classification"


def test_weights_without_a_place_are_named(tmp_path: Path) -> None:
    folder = change_tensors(checkpoint(tmp_path / "model"), add=("bert.encoder.layer.9.x.weight", "cls.bias"))
    match = r"the checkpoint has 2 weights that .* left out: bert\.encoder\.layer\.9\.x\.weight, cls\.bias"
    with pytest.warns(OctavoWarning, match=match):
        load(folder)


def test_a_new_head_replaces_the_checkpoints_own_without_a_word(tmp_path: Path) -> None:
    """Its labels were given, so that it is to be trained."""
    folder = checkpoint(tmp_path / "model", head="masked-lm")
    assert load(folder, head="sequence-classification", labels=2).head == "sequence-classification"
    change_tensors(folder, add=("bert.encoder.layer.9.x.weight",))
    with pytest.warns(OctavoWarning, match=r"the checkpoint has 1 weight that .*: bert\.encoder\.layer\.9"):
        load(folder, head="sequence-classification", labels=2)


def test_a_head_that_is_asked_for_and_random_is_told(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", head="masked-lm")
    match = r"lacks \d weights of the sequence-classification head, random now: .*classifier\.bias, .*trained"
    with pytest.warns(OctavoWarning, match=match):
        load(folder, head="sequence-classification")


@pytest.mark.parametrize("lost", ["classifier.", "classifier.weight"], ids=["whole", "in part"])
def test_a_head_that_the_checkpoint_lacks_is_not_chosen(tmp_path: Path, lost: str) -> None:
    folder = change_tensors(checkpoint(tmp_path / "model"), (lost,))
    match = (
        r"config\.json names BertForSequenceClassification, but the checkpoint lacks \d weights? of the "
        r"sequence-classification head \(classifier\..*loaded as a bare encoder"
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", OctavoWarning)
        encoder = load(folder)
    assert re.search(match, str(told[0].message))
    assert (encoder.head, encoder.output_names) == ("encoder", ("last_hidden_state",))


# -- sentence encoders ---------------------------------------------------------------------------------------


def sentence_folder(folder: Path, head: Head = "masked-lm", **settings: Any) -> Path:
    """A folder as all-mpnet-base-v2 has it: config.json names a head that the checkpoint lacks."""
    checkpoint(folder, "mpnet", head)
    change_tensors(folder, ("lm_head.",))
    return write_modules(folder, [TRANSFORMER, POOLING, ("2_Normalize", "Normalize")], **settings)


def test_a_folder_of_sentence_transformers_is_an_embedding_model(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path, pooling={"pooling_mode": "cls"})
    assert json.loads((folder / "config.json").read_text())["architectures"] == ["MPNetForMaskedLM"]
    encoder = load(folder)
    assert (encoder.head, encoder.pooling) == ("encoder", "cls")
    batch = families.batch((3, 8), padded=True)
    first = encoder(batch)["last_hidden_state"][:, 0]
    assert torch.allclose(encoder.embed(batch, encoder(batch)), first / first.norm(dim=-1, keepdim=True))


def test_a_head_can_be_put_on_a_sentence_encoder(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path, pooling={"pooling_mode": ["mean", "max"]})
    encoder = load(folder, head="sequence-classification", labels=3)
    assert encoder(families.batch((2, 6)))["logits"].shape == (2, 3)


def test_texts_are_cut_where_the_files_say_and_the_model_still_takes_more(tmp_path: Path) -> None:
    encoder = load(sentence_folder(tmp_path, sentence_bert_config={"max_seq_length": 12}))
    assert (encoder.text_length, encoder.max_length) == (12, families.LENGTH)
    assert encoder(families.batch((1, 20)))["last_hidden_state"].shape[1] == 20


def test_a_transformer_in_a_folder_of_its_own_is_loaded(tmp_path: Path) -> None:
    checkpoint(tmp_path / "0_Transformer", "mpnet", "encoder")
    write_modules(tmp_path, [("0_Transformer", "Transformer"), POOLING], {"pooling_mode": "max"})
    encoder = load(tmp_path)
    assert (encoder.pooling, encoder.sentence.step_names) == ("max", ())


def test_a_model_of_the_hub_is_pooled_as_its_files_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants

    commit = "0123456789012345678901234567890123456789"
    repository = tmp_path / "models--someone--encoder"
    sentence_folder(repository / "snapshots" / commit, pooling={"pooling_mode": "cls"})
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("octavo.graph.capture.source.load_tokenizer", lambda *_: None)
    encoder = load("someone/encoder")
    assert (encoder.head, encoder.pooling) == ("encoder", "cls")


# -- encoders with a decoder beside them ---------------------------------------------------------------------


@pytest.mark.parametrize("family", ["T5", "MT5", "UMT5"])
def test_encoders_of_t5_are_loaded(tmp_path: Path, family: str) -> None:
    config = getattr(transformers, f"{family}Config")(**families.T5)
    network = getattr(transformers, f"{family}EncoderModel")(config).eval()
    network.save_pretrained(tmp_path)
    encoder = load(tmp_path)
    batch = families.batch((3, 14), padded=True)
    with torch.no_grad():
        expected = network(**batch).last_hidden_state
    assert torch.allclose(encoder(batch)["last_hidden_state"], expected, atol=1e-6)
    assert encoder.layers == 2


def test_the_encoder_of_a_whole_t5_is_loaded_alone_when_asked_for(tmp_path: Path) -> None:
    network = transformers.T5ForConditionalGeneration(transformers.T5Config(**families.T5)).eval()
    network.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"\(t5\) has a decoder.*load its encoder alone with head='encoder'"):
        load(tmp_path)
    batch = families.batch((2, 9))
    with torch.no_grad():
        expected = network.encoder(**batch).last_hidden_state
    assert torch.allclose(load(tmp_path, head="encoder")(batch)["last_hidden_state"], expected, atol=1e-6)
    write_modules(tmp_path, [TRANSFORMER, POOLING])  # as sentence-T5 has it
    assert torch.allclose(load(tmp_path)(batch)["last_hidden_state"], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("", "the model's name is empty; give a hub id, a folder or demo:minilm"),
        ("./nowhere", "./nowhere is not a folder with a model"),
        ("demo:maxilm", "unknown demo model demo:maxilm; did you mean 'demo:minilm'"),
    ],
    ids=["empty", "no folder", "unknown demo"],
)
def test_places_without_a_model(model: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        locate(model)


def test_a_folder_without_config(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no config\.json; give a folder that save_pretrained wrote"):
        load(tmp_path)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    families.config("bert").save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"has no weights: it has no model\.safetensors"):
        load(tmp_path)


def test_pickled_weights_are_not_opened(tmp_path: Path) -> None:
    families.config("bert").save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError, match="it has only pickled weights, which Octavo does not open"):
        load(tmp_path)


def test_truncated_weights(tmp_path: Path) -> None:
    file = checkpoint(tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-64])
    with pytest.raises(
        ModelError, match=r"model\.safetensors is corrupt or truncated .*; copy or download it again"
    ):
        load(tmp_path)


def test_weights_that_are_not_finite_are_named(tmp_path: Path) -> None:
    tensors = load_file(checkpoint(tmp_path) / "model.safetensors")
    tensors["classifier.weight"][0, 0] = float("nan")
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match=r"the weight classifier\.weight holds NaN or infinity; the checkpoint is broken"
    ):
        load(tmp_path)


@pytest.mark.parametrize("key", ["is_decoder", "is_encoder_decoder"])
def test_decoders_are_refused(tmp_path: Path, key: str) -> None:
    file = checkpoint(tmp_path) / "config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) | {key: True}
    file.write_text(json.dumps(settings), encoding="utf-8")
    with pytest.raises(ModelError, match=r"\(bert\) has a decoder; Octavo quantizes encoders"):
        load(tmp_path)


def test_an_unknown_head(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="unknown head 'masked-ml'; did you mean 'masked-lm'"):
        load(checkpoint(tmp_path), head="masked-ml")  # type: ignore[arg-type]


def test_the_demo_model_is_the_real_one(demo_encoder: Any) -> None:
    assert demo_encoder.max_length == 512
    assert demo_encoder.pooling == "mean"
    assert len(demo_encoder.activation_sites) == 3 + 13 * 6


@pytest.mark.parametrize("types", [False, True], ids=["no token types given", "token types given"])
def test_token_types_that_a_model_makes_itself_stay_its_own(types: bool) -> None:
    """BigBird's question answering tells questions from answers by the first separator."""
    network = families.network("big-bird", "question-answering")
    names = ("input_ids", "attention_mask", *(("token_type_ids",) if types else ()))
    tokenizer = SimpleNamespace(model_input_names=names, model_max_length=64)
    encoder = make_encoder("tiny", network, cast(Any, tokenizer), "question-answering")
    batch = {"input_ids": torch.tensor([[7, 8, 3, 9, 10, 3]])}
    if types:
        batch["token_type_ids"] = torch.tensor([[0, 0, 0, 1, 1, 1]])
    assert encoder.inputs == names
    assert torch.equal(encoder(batch)["start_logits"], network(**batch).start_logits)
