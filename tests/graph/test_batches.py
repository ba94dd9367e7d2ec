from __future__ import annotations

import pytest
import torch

from octavo.errors import DataError, OctavoWarning
from octavo.graph import Encoder
from octavo.graph.batches import tokenize, without_padding

TEXTS = ["one two three four five", "one", "one two", "one two three", ("one", "two"), "two"]


def test_texts_come_shortest_first_with_their_places(demo_encoder: Encoder) -> None:
    groups = list(demo_encoder.batches(TEXTS, batch_size=2))
    assert sorted(place for places, _ in groups for place in places) == list(range(len(TEXTS)))
    lengths = [int(length) for _, batch in groups for length in batch["attention_mask"].sum(1)]
    assert lengths == sorted(lengths)
    assert all(batch["input_ids"].shape == batch["attention_mask"].shape for _, batch in groups)


def test_single_texts_and_pairs_are_tokenized_as_each_alone(demo_encoder: Encoder) -> None:
    assert demo_encoder.tokenizer is not None
    expected = [
        dict(
            demo_encoder.tokenizer(
                *((text,) if isinstance(text, str) else text), max_length=6, truncation=True
            )
        )
        for text in TEXTS
    ]
    with pytest.warns(OctavoWarning, match="1 of 6 texts are longer than 6 tokens"):
        assert tokenize(demo_encoder.tokenizer, TEXTS, 6) == expected


def test_without_padding_a_batch_has_one_length(demo_encoder: Encoder) -> None:
    for _, batch in demo_encoder.batches(TEXTS, batch_size=4, pad=False):
        assert int(batch["attention_mask"].min()) == 1


def test_an_order_can_be_given(demo_encoder: Encoder) -> None:
    groups = list(demo_encoder.batches(TEXTS, batch_size=2, order=[3, 1, 0, 2, 5, 4]))
    assert [places for places, _ in groups] == [[3, 1], [0, 2], [5, 4]]


def test_pairs_have_two_token_types(demo_encoder: Encoder) -> None:
    _, batch = next(iter(demo_encoder.batches([("one", "two")])))
    assert batch["token_type_ids"].tolist() == [[0, 0, 0, 1, 1]]


def test_a_file_of_pairs_for_a_sentence_encoder_is_told(demo_encoder: Encoder) -> None:
    with pytest.warns(OctavoWarning, match="all 2 texts are pairs; demo:minilm embeds single texts"):
        list(demo_encoder.batches([("a query", "a document"), ("another", "document")]))


def test_long_texts_are_cut_with_a_warning_that_counts_them(demo_encoder: Encoder) -> None:
    assert demo_encoder.tokenizer is not None
    with pytest.warns(
        OctavoWarning,
        match=r"1 of 2 texts are longer than 4 tokens and were truncated \(the first is number 2\)",
    ):
        tokens = tokenize(demo_encoder.tokenizer, ["one", "one two three four"], 4)
    assert [len(item["input_ids"]) for item in tokens] == [3, 4]


@pytest.mark.parametrize("texts", [[], "one text"], ids=["empty", "a string"])
def test_no_texts_is_an_error(demo_encoder: Encoder, texts: list[str]) -> None:
    with pytest.raises(DataError, match="no texts were given; give a list with at least one text"):
        list(demo_encoder.batches(texts))


@pytest.mark.parametrize("side", ["left", "right", "middle"])
def test_padding_is_removed_wherever_it_stands(side: str) -> None:
    mask = {"left": [0, 0, 1, 1], "right": [1, 1, 0, 0], "middle": [1, 0, 0, 1]}[side]
    batch = {
        "input_ids": torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]),
        "attention_mask": torch.tensor([mask, [1, 1, 1, 1], mask]),
        "labels": torch.tensor([0, 1, 2]),
    }
    short, full = without_padding(batch)
    kept = [place for place, bit in enumerate(mask) if bit]
    assert torch.equal(short["input_ids"], batch["input_ids"][[0, 2]][:, kept])
    assert short["labels"].tolist() == [0, 2]
    assert full["input_ids"].tolist() == [[5, 6, 7, 8]]


def test_a_batch_without_padding_or_mask_stays_whole() -> None:
    batch = {"input_ids": torch.ones(2, 3, dtype=torch.long)}
    (only,) = without_padding(batch)
    assert only["input_ids"] is batch["input_ids"]
