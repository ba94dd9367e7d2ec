"""What some tables need for a model, and running what is missing of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from octavo.errors import DataError, SiteError, SpecError, did_you_mean
from octavo.experiments.cell import Cell
from octavo.experiments.engine import Engine, InProcess, Workers
from octavo.experiments.grid import FLOAT_ROW, GridRun, grid_cells
from octavo.experiments.paper import RANGES
from octavo.experiments.range_search import best_ranges
from octavo.experiments.ray_engine import OnRay
from octavo.experiments.runner import RunConfiguration
from octavo.experiments.settings import Settings, settings_for
from octavo.experiments.table import Table, TableRow
from octavo.graph.capture.source import load_config
from octavo.graph.quantizers.attach import check_recipe
from octavo.methods.training.head import load_with_head
from octavo.tasks.evaluation import read_examples
from octavo.tasks.glue import task_by_short_name
from octavo.tasks.task_data import describe


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which part of the tables is run; empty means all of it.

    Arguments:
        seeds: also those of the fine-tunings that quantization starts from, unless the results folder has
            chosen its start already, or the run configuration names its seed.
    """

    tasks: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()

    def narrow(self, table: Table) -> Table:
        """Return a table with the selected rows and columns."""
        rows: tuple[TableRow, ...] = tuple(
            row for row in table.rows if not self.rows or row.name in self.rows
        )
        return replace(
            table,
            rows=rows,
            tasks=tuple(task for task in table.tasks if not self.tasks or task in self.tasks),
        )

    def check(self, tables: Sequence[Table]) -> None:
        """Refuse names that no table has."""
        rows = {row.name for table in tables for row in table.rows}
        tasks = {task for table in tables for task in table.tasks}
        for name, known, kind in [
            *((r, rows, "row") for r in self.rows),
            *((t, tasks, "task") for t in self.tasks),
        ]:
            if name not in known:
                hint = did_you_mean(name, known) or f"; there are {', '.join(sorted(known))}"
                raise SpecError(f"no {kind} {name!r} in {', '.join(table.name for table in tables)}{hint}")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cells that some tables need of a model, and what is to be done about them.

    Arguments:
        cells: all of them, without the rows that the model cannot have.
        missing: those to run: without a result, one of each experiment.
        known: the others without a result, whose experiment another row has done or will do, with its key.
        impossible: the rows that the model cannot have, and why.
    """

    cells: tuple[Cell, ...]
    missing: tuple[Cell, ...]
    known: Mapping[Cell, str]
    impossible: Mapping[str, str]


def plan(
    tables: Sequence[Table],
    selection: Selection,
    settings: Settings,
    configuration: RunConfiguration,
) -> Plan:
    """Return what there is to do for some tables; nothing is written, and folders of others are refused."""
    results = configuration.results()
    configuration.fine_tuned()  # refuses a folder of other starts
    cells = needed_cells(tables, selection, settings, configuration)
    without = impossible(results.missing(cells), configuration)
    cells = [cell for cell in cells if cell.row not in without]
    missing = results.missing(cells)
    known = results.done_by_others(missing)
    return Plan(
        cells=tuple(cells),
        missing=tuple(cell for cell in missing if cell not in known),
        known=known,
        impossible=without,
    )


def needed_cells(
    tables: Sequence[Table],
    selection: Selection,
    settings: Settings,
    configuration: RunConfiguration,
) -> list[Cell]:
    """Return the cells that some tables need, data that is not there left out with an error that names it.

    Rows of the best ranges take those that won the search in the results folder, or else the paper's.
    """
    selection.check(tables)
    narrowed = [selection.narrow(table) for table in tables]
    tasks = [task for table in narrowed for task in table.tasks]
    if configuration.data is not None:
        tasks = [task for task in dict.fromkeys(tasks) if _has_data(task, Path(configuration.data))]
        if not tasks:
            raise DataError(
                f"{configuration.data} holds none of the tasks' folders; "
                "give the folder with CoLA, SST-2, ..."
            )
        _check_data(tasks, configuration)
    layers, best = layers_of(configuration.model), dict(RANGES)
    if any(row.on(task).ranges != "settings" for table in narrowed for row in table.rows for task in tasks):
        best |= best_ranges(dict.fromkeys(tasks), settings, layers, configuration.results())
    cells = grid_cells(narrowed, tasks, settings, layers, best)
    if not selection.seeds and configuration.start_seed is None:
        return cells
    return _with_seeds(cells, narrowed, selection.seeds, configuration)


def _with_seeds(
    cells: Sequence[Cell],
    tables: Sequence[Table],
    seeds: Sequence[int],
    configuration: RunConfiguration,
) -> list[Cell]:
    """Return the cells of the seeds that were chosen, and the fine-tunings that these start from."""
    shown = any(row.name == FLOAT_ROW for table in tables for row in table.rows)
    kept = [
        cell for cell in cells if (cell.seed in seeds or not seeds) and (cell.method != "finetune" or shown)
    ]
    starts = {
        cell.path: cell
        for task in dict.fromkeys(cell.task for cell in kept if cell.method != "finetune")
        for cell in _starts(task, cells, seeds, configuration)
    }
    return [*starts.values(), *(cell for cell in kept if cell.path not in starts)]


def _starts(
    task: str, cells: Sequence[Cell], seeds: Sequence[int], configuration: RunConfiguration
) -> list[Cell]:
    """Return the fine-tunings of a task among which its start is chosen."""
    floats = [cell for cell in cells if cell.method == "finetune" and cell.task == task]
    asked, chosen = configuration.start_seed, configuration.results().start(task)
    if chosen is None:
        return [cell for cell in floats if cell.seed in (seeds if asked is None else (asked,))]
    starts = [cell for cell in floats if cell.path == chosen]
    if asked is not None and asked not in [cell.seed for cell in starts]:
        raise SpecError(
            f"{configuration.output} starts {task} from {chosen}, not from seed {asked}; "
            "leave the start's seed out, or give another folder"
        )
    return starts


def _check_data(tasks: Sequence[str], configuration: RunConfiguration) -> None:
    """Refuse files of other data than that of the results in the folder; only tasks with results are read."""
    results = configuration.results()
    done = {str(result["cell"].get("task")) for result in results.all()}
    for task in [task for task in tasks if task in done]:
        described = task_by_short_name(task)
        parts = [read_examples(described, configuration.data, split) for split in ("train", "dev")]
        results.check_data(task, {part.split: describe(part) for part in parts})


def impossible(cells: Sequence[Cell], configuration: RunConfiguration) -> dict[str, str]:
    """Return the rows among some cells that the model cannot have, such as one of a site it lacks, and why.

    The model is captured for it, on the CPU.
    """
    recipes = {cell.row: cell.recipe for cell in cells if cell.recipe is not None}
    if not recipes:
        return {}
    encoder = load_with_head(configuration.model, task_by_short_name(cells[0].task).outputs)
    reasons = {}
    for row, recipe in recipes.items():
        try:
            check_recipe(encoder, recipe)
        except SiteError as error:
            reasons[row] = str(error)
    return reasons


def missing_tasks(tables: Sequence[Table], data: str | Path) -> list[str]:
    """Return the tasks of some tables that a folder has no files of."""
    tasks = dict.fromkeys(task for table in tables for task in table.tasks)
    return [task for task in tasks if not _has_data(task, Path(data))]


def reproduce(
    cells: Sequence[Cell],
    configuration: RunConfiguration,
    engine: Engine,
    *,
    stop_after: float = math.inf,
    report: Callable[[Cell, float | None, str | None], None] | None = None,
    trainings: int | None = None,
) -> dict[str, str]:
    """Run the cells that have no result yet, at most so many that train at once; return what failed."""
    return GridRun(configuration, cells, engine, report, trainings).run(stop_after)


def make_engine(
    name: str, configuration: RunConfiguration, workers: int | None, address: str | None = None
) -> Engine:
    """Return the engine of a name: process, workers or ray."""
    if name == "ray":
        return OnRay(configuration, workers, address)
    return InProcess(configuration) if (workers or 1) == 1 else Workers(configuration, workers or 1)


def layers_of(model: str) -> int:
    """Return the number of layers of a model by its configuration."""
    config = load_config(model)
    return int(getattr(config, "num_hidden_layers", 0) or getattr(config, "n_layers", 0))


def choose_settings(model: str) -> tuple[Settings, str]:
    """Return the settings for a model by its architecture and width, and a sentence that says so."""
    config = load_config(model)
    architecture = str(getattr(config, "model_type", "unknown"))
    width = int(getattr(config, "hidden_size", 0) or getattr(config, "dim", 0))
    chosen = settings_for(architecture, width)
    return chosen, f"Settings {chosen.name}, for {architecture} of width {width}; --settings takes others"


def _has_data(task: str, data: Path) -> bool:
    described = task_by_short_name(task)
    return described.reader is not None or (data / described.folder / "train.tsv").is_file()
