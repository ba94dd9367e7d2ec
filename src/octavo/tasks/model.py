"""What evaluation asks of a model: a float or quantized Encoder has it, and so can any other runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from octavo.progress import Progress, silent
from octavo.tasks.texts import Text


class Model(Protocol):
    """A model with its tokenizer: it cuts texts into batches and maps a batch to named outputs."""

    @property
    def name(self) -> str:
        """The name the model is reported under."""

    @property
    def head(self) -> str:
        """encoder, sequence-classification, token-classification, question-answering or masked-lm."""

    @property
    def config(self) -> Any:
        """The Hugging Face configuration."""

    @property
    def tokenizer(self) -> Any:
        """The Hugging Face tokenizer."""

    @property
    def max_length(self) -> int:
        """Most tokens the model takes."""

    @property
    def inputs(self) -> Sequence[str]:
        """The names of the tensors the model takes."""

    @property
    def output_names(self) -> Sequence[str]:
        """The names of the tensors the model returns."""

    @property
    def device(self) -> Any:
        """Where the model's tensors lie."""

    def __call__(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the outputs of a batch by name."""

    def batches(
        self, texts: Sequence[Text], batch_size: int = 32, max_length: int | None = None
    ) -> Iterable[tuple[Sequence[int], Mapping[str, Tensor]]]:
        """Yield the positions of some texts and their batch until every text was seen once.

        Texts are cut to `max_length` tokens, or to what the model takes if that is less.
        """

    def embed(self, batch: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> Tensor:
        """Return the pooled embeddings (B, d) of a bare encoder."""


def run(
    model: Model,
    texts: Sequence[Text],
    batch_size: int,
    progress: Progress = silent,
    max_length: int | None = None,
) -> Iterable[tuple[list[int], Mapping[str, Tensor], Mapping[str, Tensor]]]:
    """Yield positions, batch and outputs of all texts, reporting progress after each batch."""
    done = 0
    for indices, batch in model.batches(texts, batch_size=batch_size, max_length=max_length):
        with torch.no_grad():
            outputs = model(batch)
        yield list(indices), batch, outputs
        done += len(indices)
        progress(done, len(texts))


def trained_length(model: Model) -> int | None:
    """Return the most tokens that texts had when the model was fine-tuned, None where it does not say."""
    length: int | None = getattr(model.config, "trained_max_length", None)
    return length
