"""A reference: the outputs of the float model on some texts, computed once, to compare other models with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from octavo.errors import DataError
from octavo.fidelity.content import content_mask, label_names
from octavo.fidelity.measures import EMBEDDING, Fidelity
from octavo.fidelity.tally import FidelityTally
from octavo.graph import Encoder, Text
from octavo.progress import Progress, silent

KEPT_BYTES = 2**28
"""How much a reference keeps; outputs beyond it are computed again for every model."""
Batch = Mapping[str, Tensor]
Batches = Iterable[tuple[Sequence[int], Batch]]


class Comparable(Protocol):
    """What fidelity asks of a model: a float or quantized Encoder has it, and so can any other runtime."""

    @property
    def head(self) -> str:
        """encoder, sequence-classification, token-classification, question-answering or masked-lm."""

    @property
    def device(self) -> Any:
        """Where the model's tensors lie."""

    def __call__(self, batch: Batch) -> Mapping[str, Tensor]:
        """Return the outputs of a batch by name."""

    def embed(self, batch: Batch, outputs: Mapping[str, Tensor]) -> Tensor:
        """Return the pooled embeddings (B, d) of a bare encoder."""


class Reference:
    """A model's outputs on batches of texts, which other models of the same head are compared with.

    Arguments:
        batches: the positions of some texts with their batch, until every text was there once.
        texts: how many texts that is.
        keep: bytes of outputs to keep; with 0 batches are not kept either, and one model can be compared.
    """

    def __init__(self, model: Comparable, batches: Batches, texts: int, *, keep: int = KEPT_BYTES) -> None:
        if texts == 0:
            raise DataError("Fidelity needs at least one text; the list of texts is empty.")
        self._model = model
        self._batches = list(batches) if keep else batches
        self._texts = texts
        self._room = keep
        self._kept: dict[int, dict[str, Tensor]] = {}

    @classmethod
    def of_texts(
        cls, encoder: Encoder, texts: Sequence[Text], *, batch_size: int = 32, max_length: int | None = None
    ) -> Reference:
        """Return the reference that an encoder is on some texts."""
        return cls(encoder, encoder.batches(texts, batch_size, max_length), len(texts))

    def compare(self, model: Comparable, progress: Progress = silent) -> Fidelity:
        """Run a model on the same batches; progress counts texts."""
        tally = FidelityTally(model.head, labels=label_names(self._model))
        done = 0
        for number, (indices, batch) in enumerate(self._batches):
            with torch.no_grad():
                outputs = _outputs(model, batch)
            reference = self._outputs(number, batch)
            tally.update(outputs, reference, batch.get("attention_mask"), content_mask(self._model, batch))
            done += len(indices)
            progress(done, self._texts)
        return tally.result()

    def _outputs(self, number: int, batch: Batch) -> dict[str, Tensor]:
        if number in self._kept:
            return self._kept[number]
        with torch.no_grad():
            outputs = _outputs(self._model, _moved(batch, self._model.device))
        size = sum(tensor.numel() * tensor.element_size() for tensor in outputs.values())
        if size <= self._room:
            self._room -= size
            self._kept[number] = outputs
        return outputs


def _outputs(model: Comparable, batch: Batch) -> dict[str, Tensor]:
    """Return all outputs of a batch; those of a bare encoder with the pooled embedding of each text."""
    outputs = model(batch)
    extra = {EMBEDDING: model.embed(batch, outputs)} if model.head == "encoder" else {}
    return {**outputs, **extra}


def _moved(batch: Batch, device: Any) -> dict[str, Tensor]:
    return {name: tensor.to(device) for name, tensor in batch.items()}
