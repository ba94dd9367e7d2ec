"""Regression: a number for every text or pair, from a head with one output."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from octavo.errors import OctavoWarning
from octavo.numerics.metrics import pearson, spearman
from octavo.tasks.examples import Examples
from octavo.tasks.kinds.labelling import TaskLabelled, score_loss, with_loss
from octavo.tasks.kinds.outputs import check_outputs
from octavo.tasks.kinds.task import Running, chosen_metrics
from octavo.tasks.kinds.texts_and_labels import LabelledTexts, logits_of, number
from octavo.tasks.model import Model
from octavo.tasks.reading.rows import Source

if TYPE_CHECKING:
    from octavo.graph import Encoder

Scores = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Regression(LabelledTexts, name="regression"):
    """A number for every text or pair."""

    heads: ClassVar[tuple[str, ...]] = ("sequence-classification",)
    known_metrics: ClassVar[tuple[str, ...]] = ("pearson", "spearman")

    def check_model(self, model: Model) -> None:
        """Refuse a model without the head, or with several outputs."""
        super().check_model(model)
        check_outputs(self, model, exactly=1)

    def _read(self, source: Source, split: str) -> Examples:
        column = self.label_columns[0]
        return self._examples(source, split, lambda row: number(row, column), np.asarray)

    def predict(self, model: Model, examples: Examples, running: Running) -> Scores:
        """Return the number of every text, (n,)."""
        return logits_of(model, examples, running)[:, 0]

    def measure(self, predicted: Scores, examples: Examples) -> dict[str, float]:
        """Return Pearson's and Spearman's correlation."""
        return correlations(self, predicted, examples)

    def agreement(self, predicted: Scores, reference: Scores) -> dict[str, float]:
        """Return the correlation of both models' numbers, and of their ranks."""
        return agreement_of_scores(predicted, reference)

    def output_labels(self, examples: Examples) -> tuple[str, ...]:
        """Return no names: numbers have none."""
        return ()

    def labelled(self, encoder: Encoder, examples: Examples, max_length: int) -> TaskLabelled:
        """Return tokens and the number of every text, (n,)."""
        from octavo.methods.training.labelled import tokenize_labelled

        return with_loss(tokenize_labelled(encoder, examples.texts, examples.labels, max_length), score_loss)


def correlations(task: LabelledTexts, predicted: Scores, examples: Examples) -> dict[str, float]:
    """Return the correlations of numbers, and of their ranks, with the labels; 0 where all are equal."""
    if len(set(np.asarray(examples.labels).tolist())) == 1:
        warnings.warn(
            f"{examples.source}: all {len(examples)} labels are {float(examples.labels[0]):g}; nothing "
            "correlates with them, which counts as 0",
            OctavoWarning,
            stacklevel=2,
        )
    values = {
        "pearson": pearson(predicted, examples.labels),
        "spearman": spearman(predicted, examples.labels),
    }
    return chosen_metrics(task, values)


def agreement_of_scores(predicted: Scores, reference: Scores) -> dict[str, float]:
    """Return the correlations of two models' numbers."""
    return {
        "rank_correlation": 100 * spearman(predicted, reference),
        "correlation": 100 * pearson(predicted, reference),
    }
