from __future__ import annotations

import pytest
import torch

from octavo.graph.batches import Padded, of_equal_length, without_padding
from octavo.graph.padding import padded_to, reads_padding, with_padding
from tests.graph import families

READ_IT = ("convbert", "fnet", "nystromformer", "yoso")
MASK_IT = ("bert", "modernbert", "squeezebert", "t5")


def rows(*lengths: int) -> list[dict[str, torch.Tensor]]:
    return [families.batch((1, length), seed=length) for length in lengths]


@pytest.mark.parametrize("family", [*READ_IT, *MASK_IT])
def test_models_that_read_padding_are_told_by_their_results(family: str) -> None:
    encoder = families.captured(family, "encoder")[1]
    assert reads_padding(encoder, rows(12, 5)) == (family in READ_IT)


@pytest.mark.parametrize("family", ["bert", "convbert"])
def test_texts_as_long_as_the_model_takes_are_cut_to_find_out(family: str) -> None:
    encoder = families.captured(family, "encoder")[1]
    assert reads_padding(encoder, rows(encoder.max_length)) == (family == "convbert")


def test_a_head_that_looks_at_the_first_token_does_not_hide_it() -> None:
    encoder = families.captured("convbert", "sequence-classification")[1]
    assert reads_padding(encoder, rows(7))


def test_no_batches_read_nothing() -> None:
    assert not reads_padding(families.captured("bert", "encoder")[1], [])


def test_texts_are_padded_to_the_longest_and_half_as_much() -> None:
    encoder = families.captured("convbert", "encoder")[1]
    short, long = rows(4, 12)
    made = with_padding(encoder, [short, long])
    assert [batch["input_ids"].shape[1] for batch in made] == [4, 8, 12, 12]
    assert [isinstance(batch, Padded) for batch in made] == [False, True, True, False]
    assert made[0] is short and made[3] is long
    assert made[1]["input_ids"].tolist() == [[*short["input_ids"][0].tolist(), 1, 1, 1, 1]]
    assert made[1]["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0, 0, 0]]


def test_padding_that_was_given_is_kept_as_it_is() -> None:
    encoder = families.captured("convbert", "encoder")[1]
    given = families.batch((3, 6), padded=True)
    first, second, last = with_padding(encoder, [given, *rows(9)])
    assert first is given and isinstance(second, Padded) and last["input_ids"].shape[1] == 9
    assert torch.equal(second["input_ids"], given["input_ids"])


def test_the_models_own_padding_token_is_used() -> None:
    encoder = families.fresh("roberta", "encoder")  # its padding is token 1
    assert with_padding(encoder, rows(3, 5))[1]["input_ids"].tolist()[0][3:] == [1]


def test_padding_that_counts_is_never_cut_off() -> None:
    (short,) = rows(3)
    padded = padded_to({"input_ids": short["input_ids"], "labels": torch.tensor([1])}, 5, 9)
    assert padded["input_ids"][0, 3:].tolist() == [9, 9] and padded["labels"].tolist() == [1]
    assert list(without_padding(padded)) == [padded]
    together = of_equal_length([*rows(5), padded_to(short, 5, 0), padded_to(short, 5, 0)])
    assert [(len(batch["input_ids"]), isinstance(batch, Padded)) for batch in together] == [
        (1, False),
        (2, True),
    ]
