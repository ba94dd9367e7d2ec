"""Classification: one of several classes for every text or pair."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from octavo.errors import DataError, OctavoWarning
from octavo.numerics.label_metrics import label_accuracy, label_matthews, macro_f1
from octavo.tasks.examples import Examples
from octavo.tasks.kinds.labelling import TaskLabelled, class_loss, with_loss
from octavo.tasks.kinds.outputs import check_outputs, class_names, model_labels
from octavo.tasks.kinds.task import Running, chosen_metrics
from octavo.tasks.kinds.texts_and_labels import LabelledTexts, logits_of
from octavo.tasks.labels import label_name
from octavo.tasks.model import Model
from octavo.tasks.reading.rows import Row, Source

if TYPE_CHECKING:
    from octavo.graph import Encoder


@dataclass(frozen=True, kw_only=True)
class Classification(LabelledTexts, name="classification"):
    """One class for every text or pair.

    Labels are matched with the model's by name; case, spaces and hyphens do not matter.

    Arguments:
        labels: the classes in the order of the model's outputs, for a model that does not name them.
    """

    heads: ClassVar[tuple[str, ...]] = ("sequence-classification",)
    known_metrics: ClassVar[tuple[str, ...]] = ("accuracy", "f1-macro", "matthews")

    labels: tuple[str, ...] = ()

    def check_model(self, model: Model) -> None:
        """Refuse a model without the head, or with one output only, which is a score.

        One that may find several labels is warned of.
        """
        super().check_model(model)
        check_outputs(self, model, at_least=2)
        if getattr(model.config, "problem_type", None) == "multi_label_classification":
            warnings.warn(
                f"{model.name} finds any number of labels for a text; here the most likely one is scored, "
                "--task multi-label scores them all",
                OctavoWarning,
                stacklevel=2,
            )

    def check_labels(self, model: Model, examples: Examples) -> None:
        """Refuse a class that no output stands for."""
        self._names(model, examples)

    def _read(self, source: Source, split: str) -> Examples:
        return self._examples(source, split, self._label, tuple)

    def _label(self, row: Row) -> str:
        column = self.label_columns[0]
        value = row[column]
        if value is None or value != value or not (name := label_name(value)):  # a frame writes NaN
            raise DataError(f"{row.where}: the label in column {column!r} is empty; fill it in")
        return name

    def predict(self, model: Model, examples: Examples, running: Running) -> list[str]:
        """Return the class of every text, as the data writes it."""
        names = self._names(model, examples)
        return [names[index] for index in logits_of(model, examples, running).argmax(axis=1)]

    def measure(self, predicted: list[str], examples: Examples) -> dict[str, float]:
        """Return accuracy, the mean F1 of the classes and Matthews' correlation."""
        true = list(examples.labels)
        values = {
            "accuracy": label_accuracy(predicted, true),
            "f1-macro": macro_f1(predicted, true),
            "matthews": label_matthews(predicted, true),
        }
        return chosen_metrics(self, values)

    def agreement(self, predicted: list[str], reference: list[str]) -> dict[str, float]:
        """Return the share of equal classes."""
        return {"agreement": 100 * label_accuracy(predicted, reference)}

    def output_labels(self, examples: Examples) -> tuple[str, ...]:
        """Return the classes in order; one alone is an error."""
        found = class_names(examples.labels, examples.source, self.label_columns[0])
        return self.labels or found

    def labelled(self, encoder: Encoder, examples: Examples, max_length: int) -> TaskLabelled:
        """Return tokens and the index of every text's class among the model's outputs, (n,)."""
        from octavo.methods.training.labelled import tokenize_labelled

        names = self._names(encoder, examples)
        indices = np.asarray([names.index(label) for label in examples.labels], dtype=np.int64)
        return with_loss(tokenize_labelled(encoder, examples.texts, indices, max_length), class_loss)

    def _names(self, model: Model, examples: Examples) -> tuple[str, ...]:
        return model_labels(model, self.labels, examples.labels, examples.where)
