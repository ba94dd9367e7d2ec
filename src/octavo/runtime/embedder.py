"""Embeddings of texts from an exported file: the `encode` that users of sentence encoders know."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from octavo.errors import DataError, ModelError
from octavo.runtime.artifacts import open_onnx
from octavo.runtime.backends import DEFAULT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Embedder:
    """A sentence encoder that runs in integers; it needs no torch.

    >>> embedder = Embedder("minilm-int8.onnx", tokenizer="minilm-int8")
    >>> embedder.encode(["a text", "another"]).shape
    (2, 384)
    """

    def __init__(
        self,
        file: str | Path,
        tokenizer: str | Path,
        *,
        backend: str = DEFAULT,
        pooling: Literal["mean", "cls"] = "mean",
        max_length: int = 256,
        threads: int | None = None,
    ) -> None:
        """Open a file and the tokenizer of a folder, such as the one the file was exported from."""
        from transformers import AutoTokenizer

        self.run = open_onnx(file, backend, threads)
        try:
            self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(tokenizer))
        except (OSError, ValueError) as error:
            raise ModelError(
                f"{tokenizer} has no tokenizer that can be loaded; give the saved model's folder"
            ) from error
        self.pooling = pooling
        self.max_length = max_length

    def encode(self, texts: str | Sequence[str], batch_size: int = 32) -> NDArray[np.float32]:
        """Return L2-normalised embeddings, (texts, width); one vector for one text."""
        if isinstance(texts, str):
            single: NDArray[np.float32] = self.encode([texts], batch_size)[0]
            return single
        if not texts:
            raise DataError("no texts were given; give a list with at least one text")
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        vectors: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            vectors |= dict(zip(chosen, self._embed([texts[index] for index in chosen]), strict=True))
        return np.stack([vectors[index] for index in range(len(texts))])

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        batch: Any = self.tokenizer(
            texts, padding=True, truncation=True, max_length=self.max_length, return_tensors="np"
        )
        return pool(next(iter(self.run(batch).values())), batch["attention_mask"], self.pooling)


def pool(hidden: NDArray[Any], mask: NDArray[Any], pooling: str) -> NDArray[np.float32]:
    """Return one L2-normalised vector per text, (batch, width), from hidden states (batch, length, width)."""
    if pooling == "cls":
        pooled = hidden[:, 0]
    else:
        weight = mask[..., None].astype(np.float32)
        pooled = (hidden * weight).sum(1) / weight.sum(1)
    norms: NDArray[np.float32] = pooled / np.linalg.norm(pooled, axis=-1, keepdims=True)
    return norms
