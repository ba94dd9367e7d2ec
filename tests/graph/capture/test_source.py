from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo.errors import ModelError, OctavoWarning
from octavo.graph import Head
from octavo.graph.capture.source import locate
from octavo.methods import load
from tests.graph import families


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


def test_weights_that_the_checkpoint_lacks_are_named(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    tensors.pop("classifier.weight")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.warns(
        OctavoWarning, match=r"lacks 1 weights, which are random now \(the first is classifier\.weight\)"
    ):
        load(folder)


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
