from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from octavo.errors import DataError, ModelError
from octavo.graph import Encoder
from octavo.methods import load
from octavo.methods.training.finetuning import finetune, own_copy
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.pairs import tokenize_pairs
from octavo.methods.training.quantized import qat
from octavo.spec.presets import recipe
from octavo.tasks import (
    Classification,
    MultiLabel,
    QuestionAnswering,
    Regression,
    Similarity,
    Task,
    TokenClassification,
)
from octavo.tasks.task_data import read_kind

HYPER = Hyperparameters(learning_rate=5e-3, batch_size=8, epochs=4, hidden_dropout=0.0, attention_dropout=0.0)
WORDS = ["apple", "stone", "pear", "grape", "fig", "plum", "cherry", "lemon"]
TAGS = ("O", "B-A")
_NAMES = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
_TAG_NAMES = {"id2label": dict(enumerate(TAGS)), "label2id": {tag: i for i, tag in enumerate(TAGS)}}


def rows(make: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    return [make(word) for word in WORDS] * 3


def has_a(word: str) -> str:
    return "yes" if "a" in word else "no"


TEXT_AND_LABEL = {"text": "text", "label": "label"}
KINDS: dict[str, tuple[str, dict[str, Any], Task]] = {
    "classification": (
        "BertForSequenceClassification",
        _NAMES,
        Classification(
            train=rows(lambda w: {"text": w, "label": has_a(w)}),
            dev=rows(lambda w: {"text": w, "label": has_a(w)}),
            **TEXT_AND_LABEL,
        ),
    ),
    "multi-label": (
        "BertForSequenceClassification",
        _NAMES,
        MultiLabel(
            train=rows(lambda w: {"text": w, "label": [has_a(w)]}),
            dev=rows(lambda w: {"text": w, "label": [has_a(w)]}),
            **TEXT_AND_LABEL,
        ),
    ),
    "regression": (
        "BertForSequenceClassification",
        {"num_labels": 1},
        Regression(
            train=rows(lambda w: {"text": w, "label": len(w)}),
            dev=rows(lambda w: {"text": w, "label": len(w)}),
            **TEXT_AND_LABEL,
        ),
    ),
    "token classification": (
        "BertForTokenClassification",
        _TAG_NAMES,
        TokenClassification(
            train=rows(lambda w: {"tokens": ["see", w], "tags": ["O", TAGS["a" in w]]}),
            dev=rows(lambda w: {"tokens": ["see", w], "tags": ["O", TAGS["a" in w]]}),
        ),
    ),
    "question answering": (
        "BertForQuestionAnswering",
        {},
        QuestionAnswering(
            train=rows(
                lambda w: {
                    "question": "what?",
                    "context": f"a {w}.",
                    "answers": {"text": [w], "answer_start": [2]},
                }
            ),
            dev=rows(
                lambda w: {
                    "question": "what?",
                    "context": f"a {w}.",
                    "answers": {"text": [w], "answer_start": [2]},
                }
            ),
        ),
    ),
    "similarity": (
        "BertModel",
        {},
        Similarity(
            train=rows(lambda w: {"sentence1": w, "sentence2": w[::-1], "score": len(w)}),
            dev=rows(lambda w: {"sentence1": w, "sentence2": w[::-1], "score": len(w)}),
        ),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_learned_in_float_and_quantized(
    tiny_bert_folder: Callable[..., Path], kind: str, tmp_path: Path
) -> None:
    architecture, settings, task = KINDS[kind]
    encoder = load(str(tiny_bert_folder(architecture, **settings)))
    data = read_kind(encoder, task, max_length=32)
    if kind == "similarity":  # ranges are found on what an embedding model reads
        assert all(isinstance(text, str) for text in data.texts)
    tuned = own_copy(encoder)
    result = finetune(tuned, data.train, HYPER, score=lambda: data.score(tuned))
    assert result.losses[-1] < result.losses[0]
    model, result = qat(
        tuned, recipe("w8a8-qat"), data.train, HYPER, calibration=data.sample(8, 0), score=data.score
    )
    assert len(result.scores) == HYPER.epochs and np.isfinite(result.losses).all()
    assert data.score(model) == pytest.approx(max(result.scores), abs=1e-6)
    again = load(str(model.save(tmp_path / "model")))
    assert data.score(again) == pytest.approx(data.score(model), abs=1e-6)


def test_pairs_are_compared_by_the_cosine_of_their_embeddings(tiny_bert_folder: Callable[..., Path]) -> None:
    encoder = load(str(tiny_bert_folder("BertModel")))
    data = tokenize_pairs(encoder, [("fig", "plum"), ("a pear", "an apple and a pear")], [1.0, 5.0])
    assert data.labels.tolist() == [0.0, 1.0]
    rows = torch.arange(2)
    inputs, labels = data.batch(rows, data.width(rows))
    assert inputs[0].shape[0] == 4
    outputs = encoder.graph(*inputs)
    embeddings = torch.cat(
        [_embedded(encoder, text) for text in ("fig", "a pear", "plum", "an apple and a pear")]
    )
    cosines = torch.nn.functional.cosine_similarity(embeddings[:2], embeddings[2:])
    wanted = (cosines - torch.tensor([0.0, 1.0])).square().mean()
    assert float(data.loss(outputs, inputs, labels).detach()) == pytest.approx(float(wanted), rel=1e-4)


def _embedded(encoder: Encoder, text: str) -> torch.Tensor:
    batch = next(iter(encoder.batches([text])))[1]
    return encoder.embed(batch, encoder(batch))


def test_pairs_that_teach_nothing_are_refused(tiny_bert_folder: Callable[..., Path]) -> None:
    encoder = load(str(tiny_bert_folder("BertModel")))
    with pytest.raises(DataError, match="2 pairs and 1 labels were given"):
        tokenize_pairs(encoder, [("a", "b"), ("c", "d")], [1.0])
    with pytest.raises(DataError, match="all 2 labels are 3; nothing can be learned"):
        tokenize_pairs(encoder, [("a", "b"), ("c", "d")], [3.0, 3.0])
    pairs = tokenize_pairs(encoder, [("a", "b"), ("c", "d")], [1.0, 2.0])
    reader = load(str(tiny_bert_folder("BertForQuestionAnswering")))
    with pytest.raises(ModelError, match="question-answering head; pairs train a model that embeds"):
        pairs.check(reader)
