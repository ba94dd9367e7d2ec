"""What the kinds with a label for each text share: their columns, their texts, and the logits of a model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from octavo.errors import DataError, ModelError, SpecError
from octavo.tasks.examples import Examples
from octavo.tasks.kinds.task import Running, Task, source_name
from octavo.tasks.model import Model, run
from octavo.tasks.reading.rows import Row, Source, read_rows
from octavo.tasks.texts import Text


@dataclass(frozen=True, kw_only=True)
class LabelledTexts(Task, abstract=True):
    """A table with one text or a pair in each row, and what is to be found.

    Arguments:
        text: the column of texts, or the two columns of a pair.
        label: the column of labels; of several labels also a column of ones and zeros for each.
    """

    several_labels: ClassVar[bool] = False

    text: str | tuple[str, ...] = "text"
    label: str | tuple[str, ...] = "label"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.text_columns) <= 2:
            raise SpecError(f"a text has one column or, for pairs, two; got {', '.join(self.text_columns)}")
        if len(self.label_columns) != 1 and not self.several_labels:
            raise SpecError(
                f"{self.variant_name} has one column of labels, got {', '.join(self.label_columns)}; "
                "several labels for a text are the kind multi-label"
            )

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The one or two columns of texts."""
        return (self.text,) if isinstance(self.text, str) else tuple(self.text)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """The columns of labels: one, but for the kinds that take several."""
        return (self.label,) if isinstance(self.label, str) else tuple(self.label)

    def _examples(
        self, source: Source, split: str, label: Callable[[Row], Any], pack: Callable[[list[Any]], Any]
    ) -> Examples:
        rows = read_rows(source)
        return Examples(
            task=self.title,
            split=split,
            texts=tuple(self._text(row) for row in rows),
            labels=pack([label(row) for row in rows]),
            full=len(rows),
            source=source_name(source),
            where=tuple(row.where for row in rows),
        )

    def _text(self, row: Row) -> Text:
        texts = [row.text(column) for column in self.text_columns]
        return texts[0] if len(texts) == 1 else (texts[0], texts[1])


def number(row: Row, column: str) -> float:
    """Return the number of a column; anything else is an error."""
    value = row[column]
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise DataError(f"{row.where}: {value!r} in column {column!r} is no number")
    return found


def logits_of(model: Model, examples: Examples, running: Running) -> NDArray[np.float64]:
    """Return the logits (n, outputs) of a model in the order of the examples."""
    rows: dict[int, NDArray[np.float64]] = {}
    for indices, _, outputs in run(
        model, examples.texts, running.batch_size, running.progress, running.max_length
    ):
        rows.update(zip(indices, outputs["logits"].detach().double().cpu().numpy(), strict=True))
    logits = np.stack([rows[index] for index in range(len(examples))])
    if not np.isfinite(logits).all():
        raise ModelError(f"logits of {model.name} on {examples.task} hold NaN or infinity")
    return logits
