"""Labelled examples: the labels of texts, and the loss that they give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from octavo.errors import DataError, ModelError
from octavo.graph import Encoder, Text
from octavo.ledger import fingerprint
from octavo.methods.training.examples import Examples, stack_tokens


@dataclass(frozen=True, kw_only=True, eq=False)
class Labelled(Examples):
    """Token ids and labels of n examples; labels (n,) is int64 for classes and float32 for regression."""

    labels: Tensor

    @property
    def regression(self) -> bool:
        """Whether the labels are numbers instead of classes."""
        return self.labels.is_floating_point()

    def to(self, device: torch.device | str) -> Self:
        """Return the same data with inputs and labels on a device."""
        return replace(super().to(device), labels=self.labels.to(device))

    def check(self, encoder: Encoder) -> None:
        """Refuse a head that does not fit the labels."""
        if encoder.head != "sequence-classification":
            raise ModelError(
                f"{encoder.name} has the head {encoder.head}; these labels need a sequence-classification "
                "head, load it with that head and the task's number of labels"
            )
        outputs = int(getattr(encoder.config, "num_labels", 0))
        if self.regression and outputs != 1:
            raise ModelError(f"{encoder.name} has {outputs} outputs; scores need 1")
        most = 0 if self.regression else int(self.labels.max())
        if not self.regression and not (int(self.labels.min()) >= 0 and most < outputs):
            raise ModelError(
                f"{encoder.name} has {outputs} outputs, the labels go to {most}; give the head one for each"
            )

    def about(self) -> dict[str, Any]:
        """Return what identifies the data: its size and a fingerprint of tokens and labels."""
        return {"examples": len(self), "sha256": fingerprint(list(self.inputs), self.labels)}

    def batch(self, rows: Tensor, width: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return inputs (rows, width) and labels (rows,) of some examples."""
        return super().batch(rows, width)[0], self.labels[rows]

    def loss(self, outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the cross-entropy or squared error of the logits, which a classifier returns first."""
        return loss_of(outputs[0], targets)


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of logits (n, classes), or for float labels the squared error of (n, 1)."""
    if labels.is_floating_point():
        return nn.functional.mse_loss(logits.squeeze(-1).float(), labels)
    return nn.functional.cross_entropy(logits.float(), labels)


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
    tokens = [dict(zip(encoded, row, strict=True)) for row in zip(*encoded.values(), strict=True)]
    inputs, lengths = stack_tokens(encoder, tokens, longest)
    values = torch.as_tensor(labels)
    values = values.float() if values.is_floating_point() else values.long()
    return Labelled(inputs=inputs, lengths=lengths, labels=values, max_length=max_length)
