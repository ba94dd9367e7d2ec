"""Similarity: do cosines of embeddings rank pairs as people do?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from octavo.errors import SpecError
from octavo.tasks.examples import Examples
from octavo.tasks.kinds.regression import Scores, agreement_of_scores, correlations
from octavo.tasks.kinds.task import Running
from octavo.tasks.kinds.texts_and_labels import LabelledTexts, number
from octavo.tasks.model import Model
from octavo.tasks.reading.rows import Source
from octavo.tasks.similarity import pair_cosines

if TYPE_CHECKING:
    from octavo.graph import Encoder
    from octavo.methods.training.examples import Examples as TrainingExamples


@dataclass(frozen=True, kw_only=True)
class Similarity(LabelledTexts, name="similarity"):
    """Pairs of texts with a number that says how similar they are, for models that embed texts."""

    heads: ClassVar[tuple[str, ...]] = ("encoder",)
    known_metrics: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    text: str | tuple[str, ...] = ("sentence1", "sentence2")
    label: str | tuple[str, ...] = "score"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.text_columns) != 2:
            raise SpecError(
                f"similarity is of pairs; name two columns of texts, not {self.text_columns[0]!r} alone"
            )

    def _read(self, source: Source, split: str) -> Examples:
        column = self.label_columns[0]
        return self._examples(source, split, lambda row: number(row, column), np.asarray)

    def predict(self, model: Model, examples: Examples, running: Running) -> Scores:
        """Return the cosine of every pair, (n,)."""
        return pair_cosines(
            model,
            examples.texts,
            batch_size=running.batch_size,
            max_length=running.max_length,
            progress=running.progress,
        )

    def measure(self, predicted: Scores, examples: Examples) -> dict[str, float]:
        """Return Spearman's and Pearson's correlation of cosines and labels."""
        return correlations(self, predicted, examples)

    def agreement(self, predicted: Scores, reference: Scores) -> dict[str, float]:
        """Return the correlation of both models' cosines, and of their ranks."""
        return agreement_of_scores(predicted, reference)

    def output_labels(self, examples: Examples) -> tuple[str, ...]:
        """Return none: an embedding model has no head."""
        return ()

    def labelled(self, encoder: Encoder, examples: Examples, max_length: int) -> TrainingExamples:
        """Return both sides of every pair, and how similar they are from 0 to 1."""
        from octavo.methods.training.pairs import tokenize_pairs

        pairs = [(text[0], text[1]) for text in examples.texts]
        return tokenize_pairs(encoder, pairs, examples.labels, max_length)
