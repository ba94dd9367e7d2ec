"""Labelled data for training: tokenized once, padded on the right, kept whole on the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from octavo.errors import DataError, ModelError
from octavo.graph import Encoder, Text
from octavo.ledger import fingerprint

_LENGTHS = 16  # batches are cut to a multiple of this: few shapes, little padding


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled:
    """Token ids and labels of n examples.

    inputs are (n, longest) for every input of the model, in its order; lengths (n,) lies on the CPU; labels
    (n,) is int64 for classes and float32 for regression; max_length is what texts were cut to, if known.
    """

    inputs: tuple[Tensor, ...]
    lengths: Tensor
    labels: Tensor
    max_length: int | None = None

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    @property
    def regression(self) -> bool:
        """Whether the labels are numbers instead of classes."""
        return self.labels.is_floating_point()

    def to(self, device: torch.device | str) -> Labelled:
        """Return the same data with inputs and labels on a device."""
        inputs = tuple(tensor.to(device) for tensor in self.inputs)
        return replace(self, inputs=inputs, labels=self.labels.to(device))

    def about(self) -> dict[str, Any]:
        """Return what identifies the data: its size and a fingerprint of tokens and labels."""
        return {"examples": len(self), "sha256": fingerprint(list(self.inputs), self.labels)}

    def width(self, rows: Tensor) -> int:
        """Return the length that some examples (on the CPU) are cut to: their longest, rounded up."""
        return self.cut(int(self.lengths[rows].max()))

    def cut(self, longest: int) -> int:
        """Return a length rounded up to the few that batches have."""
        return min(-(-longest // _LENGTHS) * _LENGTHS, self.inputs[0].shape[1])

    def batch(self, rows: Tensor, width: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return inputs (rows, width) and labels (rows,) of some examples."""
        return tuple(tensor[:, :width].index_select(0, rows) for tensor in self.inputs), self.labels[rows]


def tokenize_labelled(
    encoder: Encoder, texts: Sequence[Text], labels: Any, max_length: int = 128
) -> Labelled:
    """Tokenize examples for an encoder, cut to `max_length` tokens; labels are integers or floats, (n,)."""
    if not texts or len(texts) != len(labels):
        raise DataError(
            f"{len(texts)} texts and {len(labels)} labels were given; give one label to every text"
        )
    if encoder.tokenizer is None:
        raise ModelError(f"{encoder.name} has no tokenizer files; add them to its folder")
    longest = min(max_length, encoder.max_length)
    pairs = not isinstance(texts[0], str)
    columns = [list(column) for column in zip(*texts, strict=True)] if pairs else [list(texts)]
    encoded: Any = encoder.tokenizer(*columns, truncation=True, max_length=longest)
    ids = encoded["input_ids"]
    fills = {"input_ids": encoder.tokenizer.pad_token_id or 0}
    lengths = torch.tensor([len(row) for row in ids])
    width = min(-(-int(lengths.max()) // _LENGTHS) * _LENGTHS, longest)
    inputs = []
    for name in encoder.inputs:
        rows = encoded.get(name) or [[0 if name == "token_type_ids" else 1] * len(row) for row in ids]
        inputs.append(_padded(rows, width, fills.get(name, 0)))
    values = torch.as_tensor(labels)
    values = values.float() if values.is_floating_point() else values.long()
    return Labelled(inputs=tuple(inputs), lengths=lengths, labels=values, max_length=max_length)


def _padded(rows: Sequence[Sequence[int]], width: int, fill: int) -> Tensor:
    return torch.tensor([[*row, *[fill] * (width - len(row))] for row in rows])
