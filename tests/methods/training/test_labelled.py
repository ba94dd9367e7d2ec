from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from octavo.errors import DataError, ModelError
from octavo.graph import Encoder
from octavo.methods.training.labelled import Labelled, loss_of, tokenize_labelled


def test_rows_are_padded_on_the_right_and_cut_to_their_longest(tiny_classifier: Encoder) -> None:
    found = tokenize_labelled(tiny_classifier, ["ab", "a" * 40], [0, 1])
    assert found.lengths.tolist() == [4, 42]
    assert found.width(torch.tensor([0])) == 16 and found.width(torch.tensor([0, 1])) == 48
    (ids, mask, _), labels = found.batch(torch.tensor([1, 0]), 48)
    assert labels.tolist() == [1, 0]
    assert mask.sum(1).tolist() == [42, 4]
    assert ids[1, 4:].eq(tiny_classifier.tokenizer.pad_token_id).all()  # type: ignore[union-attr]


def test_the_graph_gives_what_it_gives_for_the_texts_themselves(tiny_classifier: Encoder) -> None:
    texts = ["ab", "abc def", ("b", "c")][:2]
    found = tokenize_labelled(tiny_classifier, texts, [0, 1])
    inputs, _ = found.batch(torch.arange(2), 16)
    with torch.no_grad():
        logits = tiny_classifier.graph(*inputs)[0]
    for places, batch in tiny_classifier.batches(texts, batch_size=1):
        assert torch.allclose(tiny_classifier(batch)["logits"], logits[places], atol=1e-5)


def test_pairs_have_token_types(tiny_classifier: Encoder) -> None:
    found = tokenize_labelled(tiny_classifier, [("ab", "c")], [0])
    assert found.inputs[2][0].sum() == 2  # c and its separator


def test_never_longer_than_the_model_takes(tiny_classifier: Encoder) -> None:
    found = tokenize_labelled(tiny_classifier, ["a" * 100], [0], max_length=1000)
    assert found.inputs[0].shape[1] == tiny_classifier.max_length
    assert tokenize_labelled(tiny_classifier, ["a" * 100], [0], max_length=20).inputs[0].shape[1] == 20


def test_float_labels_are_regression(tiny_data: Labelled, tiny_classifier: Encoder) -> None:
    assert not tiny_data.regression
    assert tokenize_labelled(tiny_classifier, ["a"], [0.5]).regression


def test_texts_without_labels_are_refused(tiny_classifier: Encoder) -> None:
    with pytest.raises(DataError, match="2 texts and 1 labels were given"):
        tokenize_labelled(tiny_classifier, ["a", "b"], [0])
    with pytest.raises(ModelError, match="has no tokenizer files"):
        tokenize_labelled(replace(tiny_classifier, tokenizer=None), ["a"], [0])


def test_scores_are_learned_by_their_squared_error() -> None:
    logits, labels = torch.tensor([[1.0], [2.0]]), torch.tensor([1.5, 4.0])
    assert float(loss_of(logits, labels)) == pytest.approx((0.25 + 4) / 2)
    assert float(loss_of(torch.zeros(3, 2), torch.tensor([0, 1, 1]))) == pytest.approx(0.6931, abs=1e-4)


def test_batches_by_length_hold_every_text_once_and_pad_less(tiny_data: Labelled) -> None:
    lengths = torch.arange(1, 131)[torch.randperm(130, generator=torch.Generator().manual_seed(1))]
    data = replace(tiny_data, inputs=(torch.zeros(130, 144),), lengths=lengths)
    order = data.order_by_length(16, torch.Generator().manual_seed(0))
    assert sorted(order.tolist()) == list(range(130))
    batches = [lengths[rows] for rows in order.split(16)]
    assert all(int(batch.max() - batch.min()) == 15 for batch in batches[:8]) and len(batches[8]) == 2
    firsts = [int(batch[0]) for batch in batches[:8]]
    assert sorted(firsts) == list(range(1, 129, 16)) != firsts
    assert torch.equal(order, data.order_by_length(16, torch.Generator().manual_seed(0)))
