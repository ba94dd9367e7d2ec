"""A cell: the smallest piece of a grid, one score by one seed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from octavo.experiments.table import Method
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.spec import Recipe, recipe_to_dict

_ALWAYS_NAMED = ("learning_rate", "batch_size", "epochs")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score: a row on a task by a seed, with the hyper-parameters tried.

    Arguments:
        row: name of the row; rows of that name in several tables share their cells.
        task: a task without its family, such as `stsb`.
        calibration: batch size and number of batches.
        searched: further hyper-parameters of which several values are tried; they stand in the file's name.
        turn: 0 for the first setting of a search; the others are run when the first ones are done.
    """

    row: str
    task: str
    method: Method
    seed: int
    recipe: Recipe | None = None
    hyper: Hyperparameters | None = None
    calibration: tuple[int, int] | None = None
    searched: tuple[str, ...] = field(default=(), compare=False)
    turn: int = field(default=0, compare=False)

    @property
    def path(self) -> str:
        """The file of the result below the results folder."""
        return f"{self.key}.json"

    @property
    def key(self) -> str:
        """What the result is called in the ledgers of results and starts."""
        return f"{self.task}/{self.row}/{self.variant}seed-{self.seed}"

    @property
    def variant(self) -> str:
        """What tells the settings that were tried apart; empty without training."""
        if self.hyper is None:
            return ""
        rate, size, epochs = self.hyper.learning_rate, self.hyper.batch_size, self.hyper.epochs
        named = [f"lr{_number(rate)}", f"bs{size}", f"e{epochs}"]
        named += [f"{name.replace('_', '-')}-{_number(getattr(self.hyper, name))}" for name in self.searched]
        return "-".join(named) + "-"

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


def searched_fields(hypers: Iterable[Hyperparameters | None]) -> tuple[str, ...]:
    """Return the hyper-parameters that differ among settings and that a file's name does not always have."""
    settings = [hyper for hyper in hypers if hyper is not None]
    names = [entry.name for entry in fields(Hyperparameters) if entry.name not in _ALWAYS_NAMED]
    return tuple(name for name in names if len({getattr(hyper, name) for hyper in settings}) > 1)


def _number(value: object) -> str:
    """Return a value as a file's name has it, short where that loses nothing."""
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value).lower()
