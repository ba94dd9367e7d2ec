"""What every data set is read into: texts with their labels, and where they came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from octavo.tasks.texts import Text


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """The labelled texts of one split of a task.

    Arguments:
        labels: for GLUE int64 class indices in its order or float64 scores, (n,); for a user's task what its
            kind says.
        full: the size of the published split; that of the file where nothing was published.
        skipped: the number of broken lines left out.
        where: which row each example is, for messages.
    """

    task: str
    split: str
    texts: tuple[Text, ...]
    labels: Any
    full: int
    source: str
    skipped: int = 0
    where: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.texts)

    @property
    def partial(self) -> bool:
        """Whether the source holds less than the published split."""
        return len(self.texts) + self.skipped < self.full

    @property
    def read_texts(self) -> tuple[Text, ...]:
        """All that a model reads of the examples, such as ranges are calibrated on."""
        return self.texts

    @property
    def together(self) -> tuple[object, ...]:
        """What each example is held out by: equal ones stay on one side."""
        return self.texts

    def part(self, chosen: Sequence[int]) -> Self:
        """Return some of the examples, as if the source held no others."""
        labels = self.labels
        few = labels[list(chosen)] if isinstance(labels, np.ndarray) else tuple(labels[i] for i in chosen)
        return replace(
            self,
            texts=tuple(self.texts[index] for index in chosen),
            labels=few,
            full=len(chosen),
            where=tuple(self.where[index] for index in chosen) if self.where else (),
        )
