"""Batches of token ids: texts sorted by length, padded little or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from octavo.errors import DataError, OctavoWarning

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Tokens = dict[str, list[int]]


class Padded(dict[str, Tensor]):
    """A batch whose padding counts, for a model that reads it: it is never cut off (see `padding`)."""


def from_texts(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str | tuple[str, str]],
    inputs: Sequence[str],
    batch_size: int,
    max_length: int,
    pad: bool,
    order: Sequence[int] | None = None,
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Yield (places of the texts, batch), shortest first or in the `order` given.

    Without `pad` a batch holds texts of one length only.
    """
    tokens = tokenize(tokenizer, texts, max_length)
    return from_tokens(tokens, inputs, batch_size, tokenizer.pad_token_id or 0, pad, order)


def from_tokens(
    tokens: Sequence[Tokens],
    inputs: Sequence[str],
    batch_size: int,
    pad_id: int = 0,
    pad: bool = True,
    order: Sequence[int] | None = None,
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Yield batches of what was tokenized already, as `from_texts` does."""
    order = order or sorted(range(len(tokens)), key=lambda place: len(tokens[place]["input_ids"]))
    padding = {"input_ids": pad_id}
    group: list[int] = []
    for place in order:
        full = len(group) == batch_size
        grows = bool(group) and len(tokens[place]["input_ids"]) != len(tokens[group[0]]["input_ids"])
        if full or (grows and not pad):
            yield group, _collate([tokens[p] for p in group], inputs, padding)
            group = []
        group = [*group, place]
    if group:
        yield group, _collate([tokens[p] for p in group], inputs, padding)


def tokenize(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str | tuple[str, str]], max_length: int
) -> list[Tokens]:
    """Token ids of every text or pair, cut to `max_length` with a warning that says how many were cut."""
    if isinstance(texts, str) or not texts:
        raise DataError("no texts were given; give a list with at least one text")
    encoded = _encode(tokenizer, texts)
    cut = [place for place, item in enumerate(encoded) if len(item["input_ids"]) > max_length]
    if cut:
        warnings.warn(
            f"{len(cut)} of {len(texts)} texts are longer than {max_length} tokens and were truncated "
            f"(the first is number {cut[0] + 1})",
            OctavoWarning,
            stacklevel=2,
        )
        shorter = _encode(tokenizer, [texts[place] for place in cut], truncation=True, max_length=max_length)
        for place, tokens in zip(cut, shorter, strict=True):
            encoded[place] = tokens
    return encoded


def _encode(tokenizer: Any, texts: Sequence[str | tuple[str, str]], **options: Any) -> list[Tokens]:
    """Return the tokens of every text: all single ones in one call of the tokenizer, all pairs in another."""
    encoded: dict[int, Tokens] = {}
    for pairs in (False, True):
        places = [place for place, text in enumerate(texts) if isinstance(text, str) is not pairs]
        if not places:
            continue
        chosen = [texts[place] for place in places]
        columns = [list(column) for column in zip(*chosen, strict=True)] if pairs else [chosen]
        # `verbose=False`: the tokenizer would print its own remark on long texts before we truncate them
        made = dict(tokenizer(*columns, verbose=False, **options))
        rows = zip(*made.values(), strict=True)
        encoded |= {place: dict(zip(made, row, strict=True)) for place, row in zip(places, rows, strict=True)}
    return [encoded[place] for place in range(len(texts))]


def _collate(items: Sequence[Tokens], inputs: Sequence[str], padding: Mapping[str, int]) -> dict[str, Tensor]:
    longest = max(len(item["input_ids"]) for item in items)
    batch = {}
    for name in inputs:
        fill = padding.get(name, 0)
        default = 1 if name == "attention_mask" else 0
        rows = [item.get(name, [default] * len(item["input_ids"])) for item in items]
        batch[name] = torch.tensor([row + [fill] * (longest - len(row)) for row in rows])
    return batch


def without_padding(batch: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Cut a padded batch into batches of rows of one length, padding removed on whichever side it stands.

    A batch whose padding counts stays whole.
    """
    mask = batch.get("attention_mask")
    if mask is None or isinstance(batch, Padded) or bool(mask.all()):
        yield batch if isinstance(batch, Padded) else dict(batch)
        return
    lengths = mask.sum(dim=1)
    if bool((lengths == 0).any()):
        raise DataError("a calibration row is all padding; drop it")
    for length in lengths.unique().tolist():
        rows = (lengths == length).nonzero().flatten()
        kept = mask[rows].bool()
        yield {
            name: tensor[rows][kept].reshape(len(rows), length)
            if tensor.shape == mask.shape
            else tensor[rows]
            for name, tensor in batch.items()
        }


def of_equal_length(batches: Iterable[Mapping[str, Tensor]], rows: int = 64) -> list[dict[str, Tensor]]:
    """Return the same texts in as few batches as can be, each of one length: without padding, or with it
    where it counts.
    """
    groups: dict[tuple[int, bool, tuple[str, ...]], list[dict[str, Tensor]]] = {}
    for batch in batches:
        for part in without_padding(batch):
            length, padded = part["input_ids"].shape[1], isinstance(part, Padded)
            groups.setdefault((length, padded, tuple(sorted(part))), []).append(part)
    made: list[dict[str, Tensor]] = []
    for (_, padded, names), parts in sorted(groups.items()):
        cut = {name: torch.cat([part[name] for part in parts]).split(rows) for name in names}
        kind = Padded if padded else dict
        made += [kind(zip(names, chunk, strict=True)) for chunk in zip(*cut.values(), strict=True)]
    return made
