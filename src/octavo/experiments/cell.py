"""A cell: the smallest piece of a grid, one score by one seed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from octavo.experiments.table import Method
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.spec import Recipe, recipe_to_dict


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score: a row on a task by a seed, with the hyper-parameters tried.

    Arguments:
        row: name of the row; rows of that name in several tables share their cells.
        task: GLUE's task without its family, such as `stsb`.
        calibration: batch size and number of batches.
        turn: 0 for the first setting of a search; the others are run when the first ones are done.
    """

    row: str
    task: str
    method: Method
    seed: int
    recipe: Recipe | None = None
    hyper: Hyperparameters | None = None
    calibration: tuple[int, int] | None = None
    turn: int = field(default=0, compare=False)

    @property
    def path(self) -> str:
        """The place of the result below the results folder."""
        return f"{self.task}/{self.row}/{self.variant}seed-{self.seed}.json"

    @property
    def variant(self) -> str:
        """What tells the settings that were tried apart; empty without training."""
        if self.hyper is None:
            return ""
        return f"lr{self.hyper.learning_rate:g}-bs{self.hyper.batch_size}-e{self.hyper.epochs}-"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; two cells are the same experiment if it is equal."""
        recipe = None if self.recipe is None else recipe_to_dict(replace(self.recipe, description=""))
        return {
            "row": self.row,
            "task": self.task,
            "method": self.method,
            "seed": self.seed,
            "recipe": recipe,
            "hyperparameters": None if self.hyper is None else self.hyper.to_dict(),
            "calibration": None if self.calibration is None else list(self.calibration),
        }
