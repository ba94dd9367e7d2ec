from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from seqeval.metrics import f1_score

from octavo.errors import DataError, OctavoWarning
from octavo.graph import Encoder
from octavo.methods import load
from octavo.tasks import TokenClassification, evaluate
from octavo.tasks.kinds.labelling import IGNORED
from octavo.tasks.kinds.task import Running

TAGS = ("O", "B-PER", "I-PER", "B-LOC")
ROWS = [
    {
        "tokens": ["anna", "smith", "is", "in", "rome", "."],
        "tags": ["B-PER", "I-PER", "O", "O", "B-LOC", "O"],
    },
    {"tokens": ["who", "?"], "tags": ["O", "O"]},
    {"tokens": ["rome"], "tags": ["B-LOC"]},
]
TASK = TokenClassification(dev=ROWS)


@pytest.fixture(scope="module")
def tagger(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    names = {"id2label": dict(enumerate(TAGS)), "label2id": {tag: number for number, tag in enumerate(TAGS)}}
    return load(tiny_bert_folder("BertForTokenClassification", **names))


def test_a_word_has_the_tag_of_its_first_token(tagger: Encoder) -> None:
    found = TASK.predict(tagger, TASK.read(), Running(batch_size=2))
    for row, tags in zip(ROWS, found, strict=True):
        # the tokenizer's own account of which token belongs to which word
        encoded = tagger.tokenizer(row["tokens"], is_split_into_words=True, return_tensors="pt")  # type: ignore[misc]
        best = tagger(dict(encoded))["logits"][0].argmax(-1).tolist()
        words = encoded.word_ids()
        assert tags == [TAGS[best[words.index(word)]] for word in range(len(row["tokens"]))]


def test_the_score_is_seqeval_s_on_the_same_tags(tagger: Encoder) -> None:
    found = TASK.predict(tagger, TASK.read(), Running())
    expected = f1_score([row["tags"] for row in ROWS], found, zero_division=0)
    result = evaluate(tagger, task=TASK, against=tagger)
    assert result.score == pytest.approx(100 * expected)
    assert list(result.metrics) == ["f1", "precision", "recall", "accuracy"]
    assert result.agreement["agreement"] == 100.0


def test_tags_that_name_no_entity_have_an_accuracy_alone(tiny_bert_folder: Callable[..., Path]) -> None:
    tagger = load(tiny_bert_folder("BertForTokenClassification", num_labels=2))
    task = TokenClassification(dev=[{"words": ["a", "b"], "tags": ["NOUN", "VERB"]}], labels=("NOUN", "VERB"))
    result = evaluate(tagger, task=task, against=tagger)
    assert list(result.metrics) == list(result.reference) == ["accuracy"]
    assert result.agreement == {"agreement": 100.0}


def test_words_beyond_the_length_count_as_tagged_o(tagger: Encoder) -> None:
    rows = [{"tokens": ["abcdefgh"] * 20, "tags": ["B-LOC"] * 20}]
    task = TokenClassification(dev=rows)
    with pytest.warns(OctavoWarning, match="1 of 1 sentences are longer than the model reads"):
        (tags,) = task.predict(tagger, task.read(), Running())
    assert len(tags) == 20 and tags[-1] == "O"


def test_a_tag_that_the_model_does_not_know(tagger: Encoder) -> None:
    with pytest.raises(
        DataError, match=r"row 1, word 'eu': label 'B-ORG' is none of those that .* knows \(O, B-PER"
    ):
        evaluate(tagger, task=TokenClassification(dev=[{"tokens": ["eu"], "tags": ["B-ORG"]}]))


def test_training_counts_first_tokens_only(tagger: Encoder) -> None:
    data = TASK.labelled(tagger, TASK.read(), 64)
    assert data.per_token and (data.labels != IGNORED).sum() == 9
    rows = torch.tensor([1])
    inputs, labels = data.batch(rows, 6)
    assert labels.shape == inputs[0].shape == (1, 6)
    with torch.no_grad():
        outputs = tagger.graph(*inputs)
    chosen = labels[0] != IGNORED
    expected = torch.nn.functional.cross_entropy(outputs[0][0][chosen], labels[0][chosen])
    assert float(data.loss(outputs, inputs, labels)) == pytest.approx(float(expected))
    assert TASK.output_labels(TASK.read())[0] == "O"
