"""Taught examples: texts without labels, with what the float model makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional

from octavo.graph import Encoder, Text
from octavo.methods.calibration.output_error import special_ids
from octavo.methods.distillation.objective import Objective
from octavo.methods.training.examples import Examples, padded_inputs

KEPT_BYTES = 2**29
"""What is kept of a teacher's results; beyond it they are computed again in every epoch."""
_SORTED = 8
"""So many batches are drawn together and cut by length."""
_MASKED = 7
"""One token in so many is masked for a masked language model."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Taught(Examples):
    """Token ids of n texts, and a teacher whose results a student should have.

    teacher takes the inputs and returns a tuple; kept holds its results for every text, or nothing. Where
    steps are recorded and replayed, lengths are rounded up to few, and nothing is kept: the teacher's part of
    a step is replayed as well.
    """

    teacher: fx.GraphModule
    objective: Objective
    kept: list[tuple[Tensor, ...]] = field(default_factory=list)
    replayed: bool = False

    def cut(self, longest: int) -> int:
        """Return the length itself where steps are not recorded by shape: padding takes time."""
        return super().cut(longest) if self.replayed else longest

    def order(self, size: int, generator: torch.Generator) -> Tensor:
        """Return a random order in which the texts of a batch are of similar length: little padding."""
        drawn = torch.randperm(len(self), generator=generator).split(size * _SORTED)
        batches = torch.cat([rows[self.lengths[rows].argsort(stable=True)] for rows in drawn]).split(size)
        whole = [rows for rows in batches if len(rows) == size]
        rest = [rows for rows in batches if len(rows) < size]  # at the end, as batches are cut from there
        return torch.cat([*(whole[i] for i in torch.randperm(len(whole), generator=generator)), *rest])

    def batch(self, rows: Tensor, width: int) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return inputs (rows, width) of some texts and the teacher's results for them."""
        inputs, _ = super().batch(rows, width)
        if not self.kept:
            return inputs, self._teach(inputs)
        texts = [self.kept[row] for row in rows.tolist()]
        columns = ([self._padded(part, width) for part in column] for column in zip(*texts, strict=True))
        return inputs, tuple(torch.stack(column) for column in columns)

    def loss(self, outputs: tuple[Tensor, ...], inputs: tuple[Tensor, ...], targets: Any) -> Tensor:
        """Return the objective's loss."""
        return self.objective.loss(outputs, targets, inputs)

    def error(self, module: fx.GraphModule, size: int = 32) -> float:
        """Return the mean error of a module's results over all texts, the shortest first."""
        total = 0.0
        for rows in self.lengths.argsort(stable=True).split(size):
            inputs, targets = self.batch(rows.to(self.device), self.width(rows))
            with torch.no_grad():
                error = self.objective.error(module(*inputs), targets, inputs)
            total += float(error) * len(rows)
        return total / len(self)

    def keep(self, size: int = 32, limit: int = KEPT_BYTES) -> None:
        """Compute the teacher's results once, if they fit into memory; every text without its padding."""
        found: dict[int, tuple[Tensor, ...]] = {}
        for rows in self.lengths.argsort(stable=True).split(size):
            results = self._teach(super().batch(rows.to(self.device), self.width(rows))[0])
            for row, *parts in zip(rows.tolist(), *results, strict=True):
                width = self.cut(int(self.lengths[row]))
                found[row] = tuple(self._cut(part, width).clone() for part in parts)
            limit -= sum(part.numel() * part.element_size() for row in rows.tolist() for part in found[row])
            if limit < 0:
                return
        self.kept.extend(found[row] for row in range(len(self)))

    def _cut(self, result: Tensor, width: int) -> Tensor:
        for axis in _token_axes(self.objective.head, result.dim()):
            result = result.narrow(axis, 0, width)
        return result

    def _padded(self, result: Tensor, width: int) -> Tensor:
        sizes = list(result.shape)
        for axis in _token_axes(self.objective.head, result.dim()):
            sizes[axis] = width
        missing = [whole - size for whole, size in zip(sizes, result.shape, strict=True)]
        return functional.pad(result, [count for gap in reversed(missing) for count in (0, gap)])

    def _teach(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return tuple(self.teacher(*inputs))


def _token_axes(head: str, dimensions: int) -> tuple[int, ...]:
    """Return the axes of the result for one text that run over tokens: the last two of attention."""
    if dimensions == 1:  # one vector a text, or the start and end of a span
        return (0,) if head == "question-answering" else ()
    return (0,) if dimensions == 2 else (1, 2)


def texts_to_learn(
    encoder: Encoder, texts: Sequence[Text], max_length: int
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return texts as inputs and lengths; some tokens masked for a masked language model."""
    inputs, lengths = padded_inputs(encoder, texts, max_length)
    mask = getattr(encoder.tokenizer, "mask_token_id", None)
    if encoder.head != "masked-lm" or mask is None:
        return inputs, lengths
    place = encoder.inputs.index("input_ids")
    ids = inputs[place]
    if bool((ids == mask).any()):  # the texts ask at places of their own
        return inputs, lengths
    chosen = (torch.arange(ids.shape[1]) + torch.arange(len(ids))[:, None]) % _MASKED == 0
    ids = ids.masked_fill(chosen & ~torch.isin(ids, special_ids(encoder)), mask)
    return (*inputs[:place], ids, *inputs[place + 1 :]), lengths
