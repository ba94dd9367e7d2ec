from __future__ import annotations

from typing import Any

import pytest
import torch

from octavo.graph import Encoder
from octavo.methods import load
from octavo.methods.context import batches_of

TEXTS = ["the dog barks.", "a cat sleeps on the mat, as it does all day.", "rain again"]


@pytest.fixture(scope="module")
def language_model(tiny_bert_folder: Any) -> Encoder:
    return load(tiny_bert_folder("BertForMaskedLM"))


def test_a_masked_language_model_is_calibrated_with_masks(language_model: Encoder) -> None:
    """It is asked at masks, and what they reach must be within the ranges."""
    assert language_model.tokenizer is not None
    mask = language_model.tokenizer.mask_token_id
    batches = batches_of(language_model, TEXTS, 1, 0, None)
    plain, masked = batches[: len(TEXTS)], batches[len(TEXTS) :]
    assert len(masked) == 2 * len(plain)
    assert not any(bool((batch["input_ids"] == mask).any()) for batch in plain)
    places = [batch["input_ids"] == mask for batch in masked]
    assert all(bool(place.any()) for place in places)
    for before, after, place in zip(2 * plain, masked, places, strict=True):
        assert torch.equal(before["input_ids"][~place], after["input_ids"][~place])
        assert not set(before["input_ids"][place].tolist()) & set(language_model.tokenizer.all_special_ids)


def test_texts_are_masked_here_and_there_and_densely(language_model: Encoder) -> None:
    """Values reach further the more masks a text has, and users ask for one word as for whole phrases."""
    assert language_model.tokenizer is not None
    masked = batches_of(language_model, TEXTS, 1, 0, None)[len(TEXTS) :]
    counts = [int((batch["input_ids"] == language_model.tokenizer.mask_token_id).sum()) for batch in masked]
    few, many = sum(counts[: len(TEXTS)]), sum(counts[len(TEXTS) :])
    assert 1.5 * few < many


def test_texts_with_masks_of_their_own_stay_as_they_are(language_model: Encoder) -> None:
    assert language_model.tokenizer is not None
    texts = [f"the {language_model.tokenizer.mask_token} barks.", "rain again"]
    assert len(batches_of(language_model, texts, 1, 0, None)) == 2


def test_other_heads_see_no_masks(tiny_bert_folder: Any) -> None:
    assert len(batches_of(load(tiny_bert_folder()), TEXTS, 1, 0, None)) == len(TEXTS)
