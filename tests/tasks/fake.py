"""A small stand-in for octavo.graph.Encoder: a test says which outputs a text has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

Text = str | tuple[str, str]


class FakeEncoder:
    """Maps a text to outputs by a function; batches come longest text first, to mix the order up."""

    def __init__(
        self,
        outputs: Callable[[Text], Mapping[str, Sequence[Any]]],
        *,
        head: str = "encoder",
        name: str = "fake",
        inputs: tuple[str, ...] = ("input_ids", "attention_mask"),
        vocab_size: int = 100,
        num_labels: int = 2,
        label2id: dict[str, int] | None = None,
    ) -> None:
        self.outputs = outputs
        self.head = head
        self.name = name
        self.inputs = inputs
        self.output_names = ("start_logits", "end_logits") if head == "question-answering" else ("logits",)
        self.device = torch.device("cpu")
        self.config = SimpleNamespace(vocab_size=vocab_size, num_labels=num_labels, label2id=label2id)
        self.sizes: list[int] = []
        self.texts: list[Text] = []
        self.max_length: int | None = None

    def batches(
        self, texts: Sequence[Text], batch_size: int = 32, max_length: int | None = None
    ) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
        self.texts, self.max_length = list(texts), max_length
        order = sorted(range(len(texts)), key=lambda index: -len(str(texts[index])))
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size]
            self.sizes.append(len(indices))
            # The id of a text is its position: the fake needs no tokenizer to find the text again.
            ids = torch.tensor([[index, index] for index in indices])
            yield indices, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def __call__(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        rows = [self.outputs(self.texts[int(index)]) for index in batch["input_ids"][:, 0]]
        return {name: torch.tensor([row[name] for row in rows]) for name in rows[0]}

    def embed(self, batch: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> Tensor:
        pooled = outputs["last_hidden_state"].mean(dim=1)
        return torch.nn.functional.normalize(pooled, dim=-1)
