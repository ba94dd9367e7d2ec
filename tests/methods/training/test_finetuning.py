from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from octavo.errors import ModelError, OutputError
from octavo.graph import Encoder
from octavo.methods import load
from octavo.methods.training.finetuning import finetune, own_copy, save_encoder
from octavo.methods.training.head import new_head
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.labelled import Labelled, tokenize_labelled
from tests.graph import families
from tests.methods import tiny

HYPER = Hyperparameters(learning_rate=5e-3, batch_size=16, epochs=12, keep="last", hidden_dropout=0.0)


def test_a_tiny_model_learns_its_task(tiny_classifier: Encoder) -> None:
    data = tiny.data(tiny_classifier, 192)
    encoder = own_copy(tiny_classifier)
    before = tiny.accuracy(tiny_classifier, data)
    finetune(encoder, data, HYPER)
    assert tiny.accuracy(encoder, data) > 0.9
    assert tiny.accuracy(tiny_classifier, data) == before


def test_saved_in_hugging_faces_format(tiny_classifier: Encoder, tmp_path: Path) -> None:
    encoder = own_copy(tiny_classifier)
    new_head(encoder, 5)
    save_encoder(encoder, tmp_path / "model")
    again = load(str(tmp_path / "model"))
    batch = next(encoder.batches(["abc"]))[1]
    assert torch.allclose(again(batch)["logits"], encoder(batch)["logits"], atol=1e-6)
    with pytest.raises(OutputError, match="exists already"):
        save_encoder(encoder, tmp_path / "model")


def test_how_long_texts_were_is_remembered(tiny_classifier: Encoder, tmp_path: Path) -> None:
    encoder = own_copy(tiny_classifier)
    data = tokenize_labelled(encoder, ["a", "b"], [0, 1], max_length=24)
    finetune(encoder, data, Hyperparameters(learning_rate=1e-3, epochs=1))
    again = load(str(save_encoder(encoder, tmp_path / "model")))
    assert again.config.trained_max_length == 24
    assert again.max_length == tiny_classifier.max_length
    assert not hasattr(tiny_classifier.config, "trained_max_length")


def test_what_takes_no_gradient_is_not_trained() -> None:
    encoder = families.fresh("roformer")
    copied = own_copy(encoder)
    name = "roformer.encoder.embed_positions.weight"
    assert not copied.graph.get_parameter(name).requires_grad
    frozen = [name for name, value in copied.graph.named_parameters() if not value.requires_grad]
    assert frozen == [name]


def test_a_head_that_does_not_fit_is_refused(
    tiny_classifier: Encoder, tiny_data: Labelled, tiny_bert_folder: Callable[..., Path]
) -> None:
    many = tokenize_labelled(tiny_classifier, ["a", "b"], [0, 2])
    with pytest.raises(ModelError, match="has 2 outputs, the labels go to 2"):
        finetune(own_copy(tiny_classifier), many, HYPER)
    scores = tokenize_labelled(tiny_classifier, ["a", "b"], [0.0, 2.5])
    with pytest.raises(ModelError, match="has 2 outputs; scores need 1"):
        finetune(own_copy(tiny_classifier), scores, HYPER)
    bare = load(str(tiny_bert_folder()))
    with pytest.raises(ModelError, match="these labels need a sequence-classification head"):
        finetune(bare, tiny_data, HYPER)
