"""Classes of texts from an exported file: what `Embedder` is for embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.runtime.text_file import Text, TextModel


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The class that a model takes a text for, and how sure it is (0 to 1; a regression's value)."""

    label: str
    score: float


class Classifier(TextModel):
    """A classifier or reranker that runs in integers; it needs no torch.

    Labels, length and tokenizer are those of the file and of what lies beside it. Scores are those of
    transformers' pipelines: softmax over several labels, sigmoid of a single one or of labels that do not
    exclude each other, and the value itself for a regression.

    >>> Classifier("sst2-int8.onnx").predict("a fine film")
    Prediction(label='positive', score=0.99)
    """

    head, purpose = "sequence-classification", "classifies texts"

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.file.labels

    def predict(self, texts: str | Sequence[Text], batch_size: int = 32) -> Any:
        """Return the most likely class of every text or pair of texts; one for one text."""
        if isinstance(texts, str):
            return self.predict([texts], batch_size)[0]
        scores = self.scores(texts, batch_size)
        return [Prediction(label=self.labels[int(row.argmax())], score=float(row.max())) for row in scores]

    def scores(self, texts: Sequence[Text], batch_size: int = 32) -> NDArray[np.float32]:
        """Return the score of every class for every text or pair of texts, (texts, labels)."""
        found: dict[int, NDArray[Any]] = {}
        for chosen, batch in self.file.batches(texts, batch_size):
            found |= dict(zip(chosen, self._activate(self.file.run(batch)["logits"]), strict=True))
        return np.stack([found[index] for index in range(len(texts))])

    def _activate(self, logits: NDArray[Any]) -> NDArray[np.float32]:
        kind = self.file.metadata.get("problem_type") or self.file.settings.get("problem_type")
        if kind == "regression":
            return np.asarray(logits, dtype=np.float32)
        if kind == "multi_label_classification" or logits.shape[-1] == 1:
            return np.asarray(1 / (1 + np.exp(-logits)), dtype=np.float32)
        return softmax(logits)


def softmax(logits: NDArray[Any]) -> NDArray[np.float32]:
    """Return the softmax over the last axis."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True), dtype=np.float32)
