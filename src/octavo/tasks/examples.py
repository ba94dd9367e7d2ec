"""What every data set is read into: texts with their labels, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from octavo.tasks.texts import Text


@dataclass(frozen=True, kw_only=True, eq=False)
class Examples:
    """The labelled texts of one split of a task.

    labels has shape (n,): int64 class indices in GLUE's order, or float64 scores for regression.
    full is the size of the published split, skipped the number of broken lines left out.
    """

    task: str
    split: str
    texts: tuple[Text, ...]
    labels: NDArray[Any]
    full: int
    source: str
    skipped: int = 0

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.texts)

    @property
    def partial(self) -> bool:
        """Whether the source holds less than the published split."""
        return len(self.texts) + self.skipped < self.full
