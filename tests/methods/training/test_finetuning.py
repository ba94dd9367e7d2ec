from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from octavo.errors import ModelError, OutputError
from octavo.graph import Encoder
from octavo.methods import load
from octavo.methods.training.dropout import set_dropout
from octavo.methods.training.finetuning import finetune, own_copy, save_encoder
from octavo.methods.training.head import head_parameters, new_head
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.labelled import Labelled, tokenize_labelled
from octavo.methods.training.step import loss_of
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


def test_a_head_is_drawn_by_its_seed(tiny_classifier: Encoder) -> None:
    heads = []
    for seed in (0, 0, 1):
        encoder = own_copy(tiny_classifier)
        new_head(encoder, seed)
        heads.append(encoder.graph.get_parameter("classifier.weight").detach())
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[0], heads[2])
    assert set(head_parameters(tiny_classifier)) == {"classifier.weight", "classifier.bias"}


def test_attention_has_the_dropout_of_the_configuration(tiny_classifier: Encoder) -> None:
    encoder = own_copy(tiny_classifier)
    rates = lambda: [m.p for m in encoder.graph.modules() if isinstance(m, torch.nn.Dropout)]  # noqa: E731
    assert rates().count(0.0) == 2  # one in each layer, as capture left it
    set_dropout(encoder)
    assert rates() == [0.1] * len(rates())
    set_dropout(encoder, attention=0.3, hidden=0.2)
    assert sorted(rates()) == [0.2] * (len(rates()) - 2) + [0.3] * 2


def test_scores_are_learned_by_their_squared_error() -> None:
    logits, labels = torch.tensor([[1.0], [2.0]]), torch.tensor([1.5, 4.0])
    assert float(loss_of(logits, labels)) == pytest.approx((0.25 + 4) / 2)
    assert float(loss_of(torch.zeros(3, 2), torch.tensor([0, 1, 1]))) == pytest.approx(0.6931, abs=1e-4)


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
    with pytest.raises(ModelError, match="training needs a sequence-classification head"):
        finetune(bare, tiny_data, HYPER)
