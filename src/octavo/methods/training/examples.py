"""Examples for training: token ids of texts, padded on the right, kept whole on a device.

What they teach is up to the kind of examples: labels (`labelled`) or a float model (`distillation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from octavo.errors import ModelError
from octavo.graph import Encoder, Text
from octavo.graph.batches import Tokens, tokenize
from octavo.ledger import fingerprint

LENGTHS = 16  # batches are cut to a multiple of this: few shapes, little padding
_POOL = 50  # batches that texts of like length are gathered from


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """Token ids of n texts, and what a model's outputs for them should have been.

    inputs are (n, longest) for every input of the model, in its order; lengths (n,) lies on the CPU;
    max_length is what texts were cut to, if known.
    """

    inputs: tuple[Tensor, ...]
    lengths: Tensor
    max_length: int | None = None

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.lengths)

    @property
    def device(self) -> torch.device:
        """Where the examples lie."""
        return self.inputs[0].device

    def to(self, device: torch.device | str) -> Self:
        """Return the same examples with their inputs on a device."""
        return replace(self, inputs=tuple(tensor.to(device) for tensor in self.inputs))

    def check(self, encoder: Encoder) -> None:
        """Refuse a model whose head cannot learn from these examples; by default none is refused."""

    def about(self) -> dict[str, Any]:
        """Return what identifies the examples: their number and a fingerprint of the tokens."""
        return {"examples": len(self), "sha256": fingerprint(list(self.inputs))}

    def width(self, rows: Tensor) -> int:
        """Return the length that some examples (on the CPU) are cut to: their longest, rounded up."""
        return self.cut(int(self.lengths[rows].max()))

    def cut(self, longest: int) -> int:
        """Return a length rounded up to the few that batches have."""
        return min(-(-longest // LENGTHS) * LENGTHS, self.inputs[0].shape[1])

    def order(self, size: int, generator: torch.Generator) -> Tensor:
        """Return the order of an epoch, (n,) on the CPU, of which every `size` in a row are a batch."""
        return torch.randperm(len(self), generator=generator)

    def order_by_length(self, size: int, generator: torch.Generator) -> Tensor:
        """Return an order whose batches hold texts of like length, the batches in random order.

        Of every `_POOL` batches drawn at random the texts are sorted; a batch that is not full stays last.
        """
        order = torch.randperm(len(self), generator=generator)
        pools = [pool[torch.argsort(self.lengths[pool], stable=True)] for pool in order.split(size * _POOL)]
        grouped = torch.cat(pools)
        whole = len(grouped) // size * size
        batches = grouped[:whole].view(-1, size)
        shuffled = batches[torch.randperm(len(batches), generator=generator)]
        return torch.cat([shuffled.flatten(), grouped[whole:]])

    def batch(self, rows: Tensor, width: int) -> tuple[tuple[Tensor, ...], Any]:
        """Return inputs (rows, width) of some examples, and what `loss` compares outputs with."""
        return tuple(tensor[:, :width].index_select(0, rows) for tensor in self.inputs), None

    def loss(self, outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], targets: Any) -> Tensor:
        """Return the loss of a batch, a number to differentiate, given the model's outputs in their order."""
        raise NotImplementedError


def padded_inputs(
    encoder: Encoder, texts: Sequence[Text], max_length: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return texts as (inputs, lengths) of `Examples`, cut to `max_length` tokens with a warning."""
    if encoder.tokenizer is None:
        raise ModelError(f"{encoder.name} has no tokenizer files; add them to its folder")
    longest = min(max_length, encoder.max_length)
    return stack_tokens(encoder, tokenize(encoder.tokenizer, texts, longest), longest)


def stack_tokens(
    encoder: Encoder, tokens: Sequence[Tokens], longest: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return the tokens of texts as (inputs, lengths) of `Examples`, at most `longest` wide."""
    padding = getattr(encoder.tokenizer, "pad_token_id", None) or 0
    lengths = torch.tensor([len(item["input_ids"]) for item in tokens])
    width = min(-(-int(lengths.max()) // LENGTHS) * LENGTHS, longest)
    inputs = []
    for name in encoder.inputs:
        default = 0 if name == "token_type_ids" else 1
        rows = [item.get(name) or [default] * len(item["input_ids"]) for item in tokens]
        fill = padding if name == "input_ids" else 0
        inputs.append(torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows]))
    return tuple(inputs), lengths
