"""Pairs of texts for models that embed texts: with a number that says how similar they are, or that match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn import functional

from octavo.errors import DataError, ModelError
from octavo.graph import Encoder
from octavo.ledger import fingerprint
from octavo.methods.training.examples import Examples, padded_inputs

TEMPERATURE = 0.05
"""What cosines are divided by before the softmax over the documents of a batch."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pairs(Examples):
    """n pairs: `inputs` are those of the first texts, `seconds` of the second; labels (n,) from 0 to 1.

    The loss is the mean squared difference of the cosine of a pair's embeddings and its label.
    """

    encoder: Encoder
    seconds: tuple[Tensor, ...]
    labels: Tensor

    def to(self, device: torch.device | str) -> Self:
        """Return the same pairs on a device."""
        seconds = tuple(tensor.to(device) for tensor in self.seconds)
        return replace(super().to(device), seconds=seconds, labels=self.labels.to(device))

    def check(self, encoder: Encoder) -> None:
        """Refuse a model that does not embed texts."""
        if encoder.head != "encoder":
            raise ModelError(
                f"{encoder.name} has a {encoder.head} head; pairs train a model that embeds texts"
            )

    def about(self) -> dict[str, Any]:
        """Return what identifies the pairs."""
        digest = fingerprint(list(self.inputs), list(self.seconds), self.labels)
        return {"examples": len(self), "sha256": digest}

    def batch(self, rows: Tensor, width: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return the inputs of all first and then of all second texts (2 rows, width), and the labels."""
        sides = zip(self.inputs, self.seconds, strict=True)
        inputs = tuple(torch.cat([side[rows, :width] for side in pair]) for pair in sides)
        return inputs, self.labels[rows]

    def loss(self, outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the squared difference of cosines and labels."""
        return functional.mse_loss(functional.cosine_similarity(*self.sides(outputs, inputs)), targets)

    def sides(self, outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the embeddings of the first and of the second texts of a batch, (rows, width) each."""
        batch = dict(zip(self.encoder.inputs, inputs, strict=True))
        found = dict(zip(self.encoder.output_names, outputs, strict=True))
        first, second = self.encoder.embed(batch, found).float().chunk(2)
        return first, second


@dataclass(frozen=True, kw_only=True, eq=False)
class Matches(Pairs):
    """n queries, each with a document that answers it; labels (n, 2) number queries and documents.

    The loss is the cross-entropy of finding a query's document, by cosine, among those of the whole batch
    (van den Oord et al. 2018; Henderson et al. 2017). Another document of the same query is no wrong answer.
    """

    def loss(self, outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the cross-entropy of cosines / `TEMPERATURE` with the diagonal."""
        first, second = (functional.normalize(side, dim=-1) for side in self.sides(outputs, inputs))
        numbers = torch.arange(len(first), device=first.device)
        same = (targets[:, None] == targets[None]).any(-1) & (numbers[:, None] != numbers)
        scores = (first @ second.T / TEMPERATURE).masked_fill(same, -torch.inf)
        return functional.cross_entropy(scores, numbers)


def tokenize_matches(encoder: Encoder, pairs: Sequence[tuple[str, str]], max_length: int = 128) -> Matches:
    """Tokenize queries and documents that answer them for an encoder."""
    if not pairs:
        raise DataError("no query with a relevant document was given; there is nothing to learn from")
    sides = []
    for texts in zip(*pairs, strict=True):
        known = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        sides.append(torch.tensor([known[text] for text in texts]))
    return Matches(**_tokenized(encoder, pairs, max_length), labels=torch.stack(sides, dim=1))


def tokenize_pairs(
    encoder: Encoder, pairs: Sequence[tuple[str, str]], labels: Any, max_length: int = 128
) -> Pairs:
    """Tokenize pairs for an encoder; labels (n,) are brought from their smallest and largest to 0 and 1."""
    values = torch.as_tensor(labels, dtype=torch.float32)
    if not pairs or len(pairs) != len(values):
        raise DataError(
            f"{len(pairs)} pairs and {len(values)} labels were given; give one label to every pair"
        )
    low, high = float(values.min()), float(values.max())
    if low == high:
        raise DataError(f"all {len(pairs)} labels are {low:g}; nothing can be learned from them")
    return Pairs(**_tokenized(encoder, pairs, max_length), labels=(values - low) / (high - low))


def _tokenized(encoder: Encoder, pairs: Sequence[tuple[str, str]], max_length: int) -> dict[str, Any]:
    """Return the fields of pairs but for their labels."""
    count = len(pairs)
    texts = [first for first, _ in pairs] + [second for _, second in pairs]
    inputs, lengths = padded_inputs(encoder, texts, max_length)
    return {
        "encoder": encoder,
        "inputs": tuple(tensor[:count] for tensor in inputs),
        "seconds": tuple(tensor[count:] for tensor in inputs),
        "lengths": torch.maximum(lengths[:count], lengths[count:]),
        "max_length": max_length,
    }
