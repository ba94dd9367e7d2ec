"""Labels as training takes them: data that knows the loss of its labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

from torch import Tensor, nn

from octavo.graph import Encoder
from octavo.methods.training.labelled import Labelled

Outputs = tuple[Tensor, ...]
Loss = Callable[[Outputs, Tensor], Tensor]

IGNORED = -100
"""The label of a token that counts nowhere: special tokens, padding, all but a word's first piece."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskLabelled(Labelled):
    """Labelled data of a user's task.

    Arguments:
        labels: (n,) classes or scores; (n, labels) ones and zeros; (n, 2) first and last token of an answer;
            (n, longest) with `per_token`, a class for every token or `IGNORED`.
        criterion: what training minimises: a function of all outputs of the module and the labels of a batch.
    """

    criterion: Loss
    per_token: bool = False

    def check(self, encoder: Encoder) -> None:
        """Refuse nothing: the kind has looked at the model before it gave its labels."""

    def batch(self, rows: Tensor, width: int) -> tuple[tuple[Tensor, ...], Tensor]:
        """Return inputs (rows, width) and labels of some examples, those of tokens cut to `width`."""
        inputs, labels = super().batch(rows, width)
        return inputs, labels[:, :width] if self.per_token else labels

    def loss(self, outputs: Outputs, inputs: tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Return the loss of a batch, given the model's outputs in their order and what `batch` returned."""
        return self.criterion(outputs, targets)


def with_loss(data: Labelled, criterion: Loss, per_token: bool = False) -> TaskLabelled:
    """Return the same data with its loss."""
    plain = {field.name: getattr(data, field.name) for field in fields(Labelled)}
    return TaskLabelled(**plain, criterion=criterion, per_token=per_token)


def class_loss(outputs: Outputs, labels: Tensor) -> Tensor:
    """Return the cross-entropy of logits (n, classes) with classes (n,)."""
    return nn.functional.cross_entropy(outputs[0].float(), labels)


def score_loss(outputs: Outputs, labels: Tensor) -> Tensor:
    """Return the squared error of (n, 1) with scores (n,)."""
    return nn.functional.mse_loss(outputs[0].squeeze(-1).float(), labels)


def set_loss(outputs: Outputs, labels: Tensor) -> Tensor:
    """Return the binary cross-entropy of logits (n, labels) with ones and zeros of that shape, or of (n,)."""
    logits = outputs[0].float()
    return nn.functional.binary_cross_entropy_with_logits(logits, labels.reshape(logits.shape))


def token_loss(outputs: Outputs, labels: Tensor) -> Tensor:
    """Return the cross-entropy of logits (n, length, classes) with classes (n, length), `IGNORED` aside."""
    return nn.functional.cross_entropy(
        outputs[0].float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED
    )


def span_loss(outputs: Outputs, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of start and end logits, (n, length) each, with tokens (n, 2)."""
    start, end = outputs[0].float(), outputs[1].float()
    return (
        nn.functional.cross_entropy(start, labels[:, 0]) + nn.functional.cross_entropy(end, labels[:, 1])
    ) / 2
