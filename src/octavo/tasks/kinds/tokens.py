"""Tokens that know where they come from: the word of a sentence, or the characters of a context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.errors import DataError, ModelError
from octavo.graph import batches
from octavo.methods.training.labelled import Labelled
from octavo.tasks.kinds.task import Running
from octavo.tasks.model import Model

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
STRIDE = 128
LONGEST_WINDOW = 384
"""Tokens of a window over a long context; the next one repeats `STRIDE` of them, as in SQuAD's scripts."""


@dataclass(frozen=True, kw_only=True)
class Sentence:
    """The tokens of one sentence, and for each the index of its word; None for special tokens."""

    tokens: dict[str, list[int]]
    words: tuple[int | None, ...]

    def first_tokens(self) -> dict[int, int]:
        """Return the first token of every word that was not cut off."""
        found: dict[int, int] = {}
        for token, word in enumerate(self.words):
            if word is not None:
                found.setdefault(word, token)
        return found


@dataclass(frozen=True, kw_only=True)
class Window:
    """The tokens of a question with a part of its context.

    example is the number of the question; characters says of each token where it stands in the context, None
    for what is not of the context.
    """

    example: int
    tokens: dict[str, list[int]]
    characters: tuple[tuple[int, int] | None, ...]


def encode_words(model: Model, words: Sequence[str], max_length: int | None = None) -> Sentence:
    """Tokenize a sentence of words; words beyond the length that a model takes are cut off."""
    encoded: Any = _fast(model)(
        " ".join(words),
        truncation=True,
        max_length=min(max_length or model.max_length, model.max_length),
        return_offsets_mapping=True,
    )
    word_of: list[int | None] = []
    for index, word in enumerate(words):
        word_of += [*([index] * len(word)), None]
    offsets = zip(encoded["offset_mapping"], encoded.sequence_ids(0), strict=True)
    # the last character: some tokenizers count the space before a word to its first token
    found = tuple(
        None if part is None or end == start else word_of[end - 1] for (start, end), part in offsets
    )
    return Sentence(tokens=_inputs(encoded), words=found)


def encode_question(
    model: Model, number: int, question: str, context: str, where: str, max_length: int | None = None
) -> list[Window]:
    """Tokenize a question with its context, in several windows that overlap where the context is long."""
    tokenizer = _fast(model)
    longest = min(max_length or LONGEST_WINDOW, model.max_length)
    asked = len(tokenizer.tokenize(question)) + tokenizer.num_special_tokens_to_add(pair=True)
    if asked >= longest:
        raise DataError(f"{where}: the question leaves no room for a context in {longest} tokens; shorten it")
    encoded: Any = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=longest,
        # two windows may share at most what a window has of the context, less one token: tokenizers panic
        stride=min(STRIDE, longest // 3, longest - asked - 1),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    windows = []
    for row in range(len(encoded["input_ids"])):
        places = zip(encoded["offset_mapping"][row], encoded.sequence_ids(row), strict=True)
        windows.append(
            Window(
                example=number,
                tokens={name: list(encoded[name][row]) for name in INPUTS if name in encoded},
                characters=tuple((start, end) if part == 1 else None for (start, end), part in places),
            )
        )
    return windows


def run_tokens(
    model: Model, items: Sequence[dict[str, list[int]]], running: Running
) -> Iterator[tuple[list[int], Mapping[str, Tensor]]]:
    """Yield the positions of some items and the outputs of their batch, until every item was there once."""
    done = 0
    pad = int(model.tokenizer.pad_token_id or 0)
    for indices, batch in batches.from_tokens(items, model.inputs, running.batch_size, pad):
        with torch.no_grad():
            outputs = model(batch)
        yield indices, outputs
        done += len(indices)
        running.progress(done, len(items))


def labelled_tokens(
    model: Model, items: Sequence[dict[str, list[int]]], labels: Tensor, max_length: int
) -> Labelled:
    """Return items with their labels as training takes them, padded on the right."""
    lengths = torch.tensor([len(item["input_ids"]) for item in items])
    order = list(range(len(items)))
    (_, batch), *_ = batches.from_tokens(
        items, model.inputs, len(items), int(model.tokenizer.pad_token_id or 0), True, order
    )
    inputs = tuple(batch[name] for name in model.inputs)
    return Labelled(inputs=inputs, lengths=lengths, labels=labels, max_length=max_length)


def _fast(model: Model) -> Any:
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ModelError(f"{model.name} has no tokenizer files; add them to its folder")
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"the tokenizer of {model.name} does not say where its tokens stand in a text; "
            "save it as a fast one (tokenizer.json)"
        )
    return tokenizer


def _inputs(encoded: Any) -> dict[str, list[int]]:
    return {name: list(encoded[name]) for name in INPUTS if name in encoded}
