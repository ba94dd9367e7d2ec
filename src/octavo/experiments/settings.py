"""Settings of a grid: hyper-parameters and calibration for each task, with lists where a search is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib import resources
from importlib.resources.abc import Traversable
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from octavo.errors import SpecError, did_you_mean
from octavo.experiments.paper import finetuning_defaults, qat_defaults
from octavo.experiments.table import TableRow
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.spec import Recipe
from octavo.tasks.glue import GLUE, task_by_short_name

_KEYS = ("octavo", "name", "models", "finetune", "train", "calibration", "seeds")
_OTHERS = "default"


@dataclass(frozen=True, kw_only=True)
class Models:
    """Models of some widths, and of some architectures (transformers' `model_type`) unless that is empty."""

    widths: tuple[int, int]
    architectures: tuple[str, ...] = ()

    def fit(self, architecture: str, width: int) -> bool:
        """Return whether a model is one of them."""
        least, most = self.widths
        return least <= width <= most and (not self.architectures or architecture in self.architectures)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What differs between models: changes to the paper's hyper-parameters and calibration.

    finetune and calibration are by task, train is by recipe (or `default`) and task. A value that is a list
    is searched: the setting with the best median over the seeds counts, as in the paper.

    Arguments:
        models: which models take these settings by themselves; None for those that are always asked for.
        seeds: most seeds of the rows that a pattern names, on all tasks or by task (or `default`), where a
            model's tables would take too long.
    """

    name: str
    models: Models | None = None
    finetune: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    train: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    calibration: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    seeds: Mapping[str, int | Mapping[str, int]] = field(default_factory=dict)

    def finetuning(self, task: str) -> list[Hyperparameters]:
        """Return every setting of FP32 fine-tuning that is tried on a task."""
        return _every(finetuning_defaults(task_by_short_name(task).name), self.finetune.get(task, {}))

    def training(self, task: str, recipe: Recipe) -> list[Hyperparameters]:
        """Return every setting of quantization-aware training that is tried for a recipe on a task."""
        changes = {
            **self.train.get(_OTHERS, {}).get(task, {}),
            **self.train.get(recipe.name, {}).get(task, {}),
        }
        return _every(qat_defaults(task_by_short_name(task).name, recipe), changes)

    def calibrating(self, task: str, row: TableRow) -> tuple[int, int]:
        """Return batch size and number of batches of calibration."""
        size, count = self.calibration.get(task, self.calibration.get(_OTHERS, (1, 16)))
        return row.batch_size or size, row.batches or count

    def seeds_of(self, row: TableRow, task: str) -> int:
        """Return how many seeds a row is run with on a task: its table's, or fewer."""
        limits = [most for name, most in _by_task(self.seeds).items() if fnmatchcase(row.name, name)]
        return min([row.seeds, *(most.get(task, most.get(_OTHERS, row.seeds)) for most in limits)])


def load_settings(name_or_path: str) -> Settings:
    """Return settings that come with Octavo (`settings_names`), or from a YAML file."""
    known = settings_names()
    if name_or_path in known:
        return _parse((_folder() / f"{name_or_path}.yaml").read_text(encoding="utf-8"), name_or_path)
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        hint = did_you_mean(name_or_path, known) or f"; there are {', '.join(known)}"
        raise SpecError(f"no settings {name_or_path!r} and no such file{hint}")
    return _parse(path.read_text(encoding="utf-8"), str(path))


def settings_names() -> tuple[str, ...]:
    """Return the names of the settings that come with Octavo."""
    names = (entry.name for entry in _folder().iterdir())
    return tuple(sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml")))


def _folder() -> Traversable:
    return resources.files("octavo.experiments") / "settings"


def settings_for(architecture: str, width: int) -> Settings:
    """Return the settings for models of an architecture and a width; of no model's own, the paper's.

    Settings that name the architecture go before those that name a width alone.
    """
    named = [settings for name in settings_names() if (settings := load_settings(name)).models is not None]
    fitting = [each for each in named if each.models is not None and each.models.fit(architecture, width)]
    fitting.sort(key=lambda each: not (each.models and each.models.architectures))
    return fitting[0] if fitting else load_settings("paper")


def _parse(text: str, source: str) -> Settings:
    data = yaml.safe_load(text)
    if not isinstance(data, dict) or data.get("octavo") != 1:
        raise SpecError(f"{source}: settings start with octavo: 1")
    for key in data:
        if key not in _KEYS:
            raise SpecError(f"{source}: unknown key {key!r}{did_you_mean(str(key), _KEYS)}")
    calibration = {task: (int(pair[0]), int(pair[1])) for task, pair in data.get("calibration", {}).items()}
    return Settings(
        name=data.get("name", source),
        models=_models(data.get("models"), source),
        finetune=data.get("finetune", {}),
        train=data.get("train", {}),
        calibration=calibration,
        seeds=_seeds(data.get("seeds", {}), source),
    )


def _by_task(seeds: Mapping[str, int | Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    """Return limits of seeds by pattern of rows and by task."""
    return {name: most if isinstance(most, Mapping) else {_OTHERS: most} for name, most in seeds.items()}


def _seeds(data: Any, source: str) -> dict[str, int | dict[str, int]]:
    if not _are_limits(data):
        raise SpecError(
            f"{source}: seeds are a number, 1 or more, for each pattern of rows, or for each of its tasks, "
            f"got {data!r}"
        )
    known = [*(task.config for task in GLUE.values()), _OTHERS]
    for name, tasks in _by_task(data).items():
        for task in tasks:
            if task not in known:
                hint = did_you_mean(str(task), known) or f"; there are {', '.join(known)}"
                raise SpecError(f"{source}: seeds of {name} name no task {task!r}{hint}")
    return dict(data)


def _are_limits(data: Any) -> bool:
    return isinstance(data, dict) and all(
        type(most) is int and most >= 1 for tasks in _by_task(data).values() for most in tasks.values()
    )


def _models(data: Any, source: str) -> Models | None:
    if data is None:
        return None
    try:
        least, most = (int(width) for width in data["widths"])
        return Models(widths=(least, most), architectures=tuple(data.get("architectures", ())))
    except (TypeError, ValueError, KeyError) as error:
        raise SpecError(
            f"{source}: models need widths, such as [1, 512], and may name architectures"
        ) from error


def _every(start: Hyperparameters, changes: Mapping[str, Any]) -> list[Hyperparameters]:
    """Return every combination of the lists among the changes; the first values first."""
    lists = {key: value if isinstance(value, list) else [value] for key, value in changes.items()}
    try:
        return [
            replace(start, **dict(zip(lists, values, strict=True))) for values in product(*lists.values())
        ]
    except TypeError as error:
        raise SpecError(f"settings: {error}") from error
