"""The error of a model's outputs, without labels: what ranges are chosen and learned by.

Every item counts the same, however large its numbers are: a text for embeddings and for classifiers, a token
for token heads and bare hidden states. With y the output of the model, r that of the float model and
u the median of |r|² over items,

    e = 2 |y - r|² / (|r|² + u)        error = mean of e / (1 + e)

which is relative where errors are small and never more than 1, so that neither an item of huge values nor a
ruined one decides for all others. Embeddings are normalized, logits centred, as softmax does not see their
mean. Special tokens have no label that anyone reads and count nowhere in token heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from octavo.graph import Encoder
from octavo.graph.batches import of_equal_length
from octavo.methods.context import Batches, Context

Rows = dict[str, Tensor]
"""The items of each output, (items, width)."""


class OutputError:
    """The error of models against the outputs of a float encoder on some texts, kept in memory.

    Arguments:
        batches: texts without padding, as `spread_texts` gives them.
    """

    def __init__(self, encoder: Encoder, batches: Sequence[Mapping[str, Tensor]]) -> None:
        self.batches = batches
        self._encoder = encoder
        self._special = special_ids(encoder)
        self.reference = [self.rows(batch, encoder(batch)) for batch in batches]
        self._unit = {
            name: torch.cat([rows[name].square().sum(-1) for rows in self.reference]).median()
            for name in (self.reference[0] if self.reference else ())
        }

    def rows(self, batch: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> Rows:
        """Return what is compared of the outputs of a batch."""
        if self._encoder.sentence.embeds and self._encoder.head == "encoder":
            embedding = self._encoder.embed(batch, outputs)
            return {"embedding": functional.normalize(embedding, dim=-1)}
        return {name: self._items(batch, output) for name, output in outputs.items()}

    def scale(self, name: str, reference: Tensor) -> Tensor:
        """Return what squared errors of the items of an output are divided by, (items, 1)."""
        return (reference.square().sum(-1, keepdim=True) + self._unit[name]).clamp(min=1e-30) / 2

    def of_batch(self, number: int, outputs: Mapping[str, Tensor]) -> Tensor:
        """Return the error of every item of a batch, (items,), given its outputs; differentiable."""
        found = self.rows(self.batches[number], outputs)
        errors = []
        for name, reference in self.reference[number].items():
            squared = (found[name] - reference).square().sum(-1) / self.scale(name, reference).squeeze(-1)
            errors.append(squared / (1 + squared))
        return torch.cat(errors)

    def of(self, model: Encoder) -> float:
        """Return the mean error of a model over all items; infinite where it gives NaN."""
        errors = torch.cat([self.of_batch(i, model(batch)) for i, batch in enumerate(self.batches)])
        mean = float(errors.mean())
        return mean if mean == mean else float("inf")

    def _items(self, batch: Mapping[str, Tensor], output: Tensor) -> Tensor:
        if output.dim() == 3:
            output = output[self._counted(batch["input_ids"]).to(output.device)]
        centred = self._encoder.head != "encoder" and output.shape[-1] > 1
        return output - output.mean(-1, keepdim=True) if centred else output

    def _counted(self, ids: Tensor) -> Tensor:
        """Return which tokens count, (batch, length)."""
        if self._encoder.head == "encoder":
            return torch.ones_like(ids, dtype=torch.bool)
        return ~torch.isin(ids, self._special.to(ids.device))


def output_error(context: Context, texts: int) -> OutputError:
    """Return the error on at most so many texts of a context; passes that ask for as many share it."""
    key = OutputError, texts
    if key not in context.remembered:
        context.remembered[key] = OutputError(context.encoder, spread_texts(context.batches, texts))
    found: OutputError = context.remembered[key]
    return found


def special_ids(encoder: Encoder) -> Tensor:
    """Return the ids of tokens that stand for no text; the mask of a language model is what it is asked."""
    tokenizer = encoder.tokenizer
    ids = set() if tokenizer is None else set(tokenizer.all_special_ids)
    unread = {getattr(tokenizer, f"{kind}_token_id", None) for kind in ("mask", "unk")}
    return torch.tensor(sorted(ids - unread), dtype=torch.int64)


def spread_texts(batches: Batches, count: int) -> list[dict[str, Tensor]]:
    """Return at most `count` texts, evenly spaced from the shortest to the longest, without padding."""
    made = of_equal_length(batches)
    total = sum(len(batch["input_ids"]) for batch in made)
    chosen = {round(i * (total - 1) / max(1, count - 1)) for i in range(count)}
    found, first = [], 0
    for batch in made:
        size = len(batch["input_ids"])
        rows = [place - first for place in range(first, first + size) if place in chosen]
        if rows:
            found.append({name: tensor[rows] for name, tensor in batch.items()})
        first += size
    return found
