"""The paper's tables as data: rows with a method, a recipe, seeds and the paper's own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from octavo.errors import SpecError, did_you_mean
from octavo.spec import Recipe, recipe_from_dict, recipe_to_dict
from octavo.spec.presets import recipe as find_recipe

Method = Literal["finetune", "quantize", "train", "distill"]
RangeSetting = Literal["settings", "single", "best"]
VERSION = 1
GLUE_TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte")


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One row of a table.

    Arguments:
        method: finetune (FP32), quantize (after training), train (quantization-aware) or distill (the same
            without labels, on as many texts as batch size and batches say).
        recipe: preset that is quantized by; None for FP32.
        estimators: another range estimator for weights or activations, as in recipe files.
        overrides: added to the recipe's own, as in recipe files; `layers.-1.` is the last layer.
        passes: instead of the recipe's own, as in recipe files.
        ranges: how they are found. `settings`: by the recipe's estimators, on as many texts as the settings
            say. `single`: of activations the minimum and maximum of one sequence, of weights by the
            estimator that is best on the task (section 5). `best`: as is best on the task (section 3).
        batch_size, batches: calibration; None takes what the settings say for the task.
        tasks: changes of these fields for single tasks.
        paper: the paper's score by task, and `mean`.
    """

    name: str
    title: str
    method: Method
    recipe: str | None = None
    estimators: Mapping[str, Any] = field(default_factory=dict)
    overrides: tuple[Mapping[str, Any], ...] = ()
    passes: tuple[Any, ...] = ()
    ranges: RangeSetting = "settings"
    batch_size: int | None = None
    batches: int | None = None
    seeds: int = 5
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise SpecError(
                f"row {self.name}: unknown method {self.method!r}"
                f"{did_you_mean(self.method, get_args(Method))}"
            )
        if (self.recipe is None) != (self.method == "finetune"):
            raise SpecError(f"row {self.name}: finetune takes no recipe, the other methods need one")
        self._check_ranges()

    def _check_ranges(self) -> None:
        known = get_args(RangeSetting)
        if self.ranges not in known:
            hint = did_you_mean(str(self.ranges), known) or f"; there are {', '.join(known)}"
            raise SpecError(f"row {self.name}: unknown ranges {self.ranges!r}{hint}")
        given = [name for name in ("estimators", "batch_size", "batches") if getattr(self, name)]
        if self.ranges != "settings" and given:
            raise SpecError(
                f"row {self.name}: ranges {self.ranges} says how ranges are found; drop {', '.join(given)}"
            )

    def on(self, task: str) -> TableRow:
        """Return the row as it is for one task, such as `stsb`."""
        return replace(self, **{**self.tasks.get(task, {}), "tasks": {}})

    def build_recipe(self, layers: int) -> Recipe | None:
        """Return the recipe with the row's changes, for a model of so many layers."""
        if self.recipe is None:
            return None
        data = recipe_to_dict(find_recipe(self.recipe))
        for kind, estimator in self.estimators.items():
            if data.get(kind) is not None:
                data[kind]["estimator"] = estimator
        if self.passes:
            data["passes"] = list(self.passes)
        extra = [_with_layers(override, layers) for override in self.overrides]
        if extra:
            data["overrides"] = [*data.get("overrides", []), *extra]
        return recipe_from_dict(data)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table: its rows, the tasks of its columns and where the paper has it."""

    name: str
    title: str
    source: str
    tasks: tuple[str, ...] = GLUE_TASKS
    rows: tuple[TableRow, ...]
    notes: str = ""


def table_names() -> tuple[str, ...]:
    """Return the names of the tables that come with Octavo."""
    folder = resources.files("octavo.experiments") / "tables"
    return tuple(
        sorted(file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))
    )


def load_table(name_or_path: str) -> Table:
    """Return a table by its name, or from a YAML file."""
    if name_or_path in table_names():
        text = (resources.files("octavo.experiments") / "tables" / f"{name_or_path}.yaml").read_text(
            encoding="utf-8"
        )
        return parse_table(text, name_or_path)
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        try:
            return parse_table(path.read_text(encoding="utf-8"), str(path))
        except OSError as error:
            raise SpecError(f"the table {path} cannot be read: {error.strerror}") from error
    known = table_names()
    hint = did_you_mean(name_or_path, known) or f"; tables are {', '.join(known)}"
    raise SpecError(f"no table {name_or_path!r} and no such file{hint}")


def parse_table(text: str, source: str) -> Table:
    """Read a table from YAML; every message starts with `source`."""
    try:
        data = yaml.safe_load(text)
        if not isinstance(data, dict) or data.pop("octavo", None) != VERSION:
            raise SpecError(f"a table starts with octavo: {VERSION}")
        rows = tuple(_row(entry) for entry in data.pop("rows", []))
        if not rows:
            raise SpecError("a table needs rows")
        tasks = tuple(data.pop("tasks", GLUE_TASKS))
        return Table(rows=rows, tasks=tasks, **_known(data, Table))
    except (yaml.YAMLError, TypeError, SpecError) as error:
        raise SpecError(f"{source}: {' '.join(str(error).split())}") from error


def _row(entry: Any) -> TableRow:
    if not isinstance(entry, dict):
        raise SpecError(f"a row is a mapping, got {entry!r}")
    known = _known(entry, TableRow)
    for key in ("overrides", "passes"):
        if key in known:
            known[key] = tuple(known[key])
    return TableRow(**known)


def _known(data: Mapping[str, Any], kind: type[TableRow] | type[Table]) -> dict[str, Any]:
    names = [entry.name for entry in fields(kind)]
    for key in data:
        if key not in names:
            raise SpecError(f"unknown key {key!r}{did_you_mean(str(key), names)}")
    return dict(data)


def _with_layers(override: Mapping[str, Any], layers: int) -> dict[str, Any]:
    """Return an override whose `layers.-1.` is the last of so many layers."""
    changed = dict(override)
    if "sites" in changed:
        sites = [changed["sites"]] if isinstance(changed["sites"], str) else changed["sites"]
        for back in range(1, layers + 1):
            sites = [site.replace(f"layers.-{back}.", f"layers.{layers - back}.") for site in sites]
        changed["sites"] = sites
    return changed
