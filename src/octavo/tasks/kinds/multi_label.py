"""Multi-label classification: any number of labels for every text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from octavo.errors import DataError
from octavo.numerics.label_metrics import exact_sets, set_f1
from octavo.tasks.examples import Examples
from octavo.tasks.kinds.labelling import TaskLabelled, set_loss, with_loss
from octavo.tasks.kinds.outputs import check_outputs, class_names, model_labels
from octavo.tasks.kinds.task import Running, chosen_metrics
from octavo.tasks.kinds.texts_and_labels import LabelledTexts, logits_of, number
from octavo.tasks.labels import label_name
from octavo.tasks.model import Model
from octavo.tasks.reading.rows import Row, Source

if TYPE_CHECKING:
    from octavo.graph import Encoder

_SEPARATORS = re.compile(r"[;|,]")


@dataclass(frozen=True, kw_only=True, eq=False)
class Marks:
    """Which of the labels `names` every text has: `chosen`, (n, labels)."""

    names: tuple[str, ...]
    chosen: NDArray[np.bool_]


def indicator(labels: Sequence[Sequence[str]], names: Sequence[str]) -> NDArray[np.bool_]:
    """Return (n, names), true where a text has the label."""
    return np.asarray([[name in row for name in names] for row in labels], dtype=bool)


@dataclass(frozen=True, kw_only=True)
class MultiLabel(LabelledTexts, name="multi-label"):
    """Any number of labels for every text or pair, each found by a logit of its own (above 0: yes).

    The labels of a row are a list, or names with `;`, `|` or `,` between them, in the column `label`; or a 0
    or 1 in a column for each label.

    Arguments:
        labels: the labels in the order of the model's outputs, for a model that does not name them.
    """

    heads: ClassVar[tuple[str, ...]] = ("sequence-classification",)
    known_metrics: ClassVar[tuple[str, ...]] = ("f1-micro", "f1-macro", "exact")
    several_labels: ClassVar[bool] = True

    labels: tuple[str, ...] = ()

    def check_model(self, model: Model) -> None:
        """Refuse a model without the head."""
        super().check_model(model)
        check_outputs(self, model, at_least=1)

    def check_labels(self, model: Model, examples: Examples) -> None:
        """Refuse a label that no output stands for."""
        self._names(model, examples)

    def _read(self, source: Source, split: str) -> Examples:
        return self._examples(
            source, split, self._marked if len(self.label_columns) > 1 else self._named, tuple
        )

    def _marked(self, row: Row) -> tuple[str, ...]:
        marks = {label: number(row, label) for label in self.label_columns}
        odd = next((label for label, mark in marks.items() if mark not in (0, 1)), None)
        if odd is not None:
            raise DataError(f"{row.where}: {row[odd]!r} in column {odd!r} is neither 0 nor 1")
        return tuple(label for label, mark in marks.items() if mark)

    def _named(self, row: Row) -> tuple[str, ...]:
        column = self.label_columns[0]
        value: Any = row[column]
        if isinstance(value, str):
            value = _SEPARATORS.split(value)
        if not isinstance(value, Sequence) and not hasattr(value, "tolist"):
            raise DataError(
                f"{row.where}: column {column!r} holds {value!r}; give a list of labels, or names with ; "
                "between them"
            )
        return tuple(name for name in map(label_name, value) if name)

    def predict(self, model: Model, examples: Examples, running: Running) -> Marks:
        """Return which labels every text has."""
        names = self._names(model, examples)
        return Marks(names=names, chosen=np.asarray(logits_of(model, examples, running) > 0))

    def measure(self, predicted: Marks, examples: Examples) -> dict[str, float]:
        """Return F1 over all labels, its mean over them, and the share of texts with all labels right."""
        true = indicator(examples.labels, predicted.names)
        values = {
            "f1-micro": set_f1(predicted.chosen, true),
            "f1-macro": set_f1(predicted.chosen, true, "macro"),
            "exact": exact_sets(predicted.chosen, true),
        }
        return chosen_metrics(self, values)

    def agreement(self, predicted: Marks, reference: Marks) -> dict[str, float]:
        """Return the share of texts with the same labels, and the F1 of both models' labels."""
        return {
            "agreement": 100 * exact_sets(predicted.chosen, reference.chosen),
            "f1-micro": 100 * set_f1(predicted.chosen, reference.chosen),
        }

    def output_labels(self, examples: Examples) -> tuple[str, ...]:
        """Return the labels in order."""
        if self.labels or len(self.label_columns) > 1:
            return self.labels or self.label_columns
        found = (name for names in examples.labels for name in names)
        return class_names(found, examples.source, self.label_columns[0])

    def labelled(self, encoder: Encoder, examples: Examples, max_length: int) -> TaskLabelled:
        """Return tokens and a one for every label that a text has, (n, outputs)."""
        from octavo.methods.training.labelled import tokenize_labelled

        ones = indicator(examples.labels, self._names(encoder, examples)).astype(np.float32)
        return with_loss(tokenize_labelled(encoder, examples.texts, ones, max_length), set_loss)

    def _names(self, model: Model, examples: Examples) -> tuple[str, ...]:
        pairs = [
            (name, place)
            for names, place in zip(examples.labels, examples.where, strict=True)
            for name in names
        ]
        return model_labels(model, self.labels, [name for name, _ in pairs], [place for _, place in pairs])
