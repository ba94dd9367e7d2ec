"""`reproduce`: run what is missing of some tables for a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from octavo.errors import DataError, SpecError, did_you_mean
from octavo.experiments.cell import Cell
from octavo.experiments.engine import Engine, InProcess, Workers
from octavo.experiments.grid import GridRun, grid_cells
from octavo.experiments.laboratory import Place
from octavo.experiments.ray_engine import OnRay
from octavo.experiments.settings import Settings
from octavo.experiments.store import Store
from octavo.experiments.table import Row, Table
from octavo.graph.capture.source import load_config
from octavo.tasks.glue import GLUE
from octavo.versions import __version__


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which part of the tables is run; empty means all of it."""

    tasks: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()

    def narrow(self, table: Table) -> Table:
        """Return a table with the selected rows and columns."""
        rows: tuple[Row, ...] = tuple(row for row in table.rows if not self.rows or row.name in self.rows)
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


def plan(tables: Sequence[Table], selection: Selection, settings: Settings, place: Place) -> list[Cell]:
    """Return the cells that some tables need, data that is not there left out with an error that names it."""
    selection.check(tables)
    narrowed = [selection.narrow(table) for table in tables]
    tasks = [task for table in narrowed for task in table.tasks]
    if place.data is not None:
        tasks = [task for task in dict.fromkeys(tasks) if _has_data(task, Path(place.data))]
        if not tasks:
            raise DataError(
                f"{place.data} holds none of the tasks' folders; give the folder with CoLA, SST-2, ..."
            )
    cells = grid_cells(narrowed, tasks, settings, layers_of(place.model))
    if not selection.seeds:
        return cells
    return [cell for cell in cells if cell.method == "finetune" or cell.seed in selection.seeds]


def missing_tasks(tables: Sequence[Table], data: str | Path) -> list[str]:
    """Return the tasks of some tables that a folder has no files of."""
    tasks = dict.fromkeys(task for table in tables for task in table.tasks)
    return [task for task in tasks if not _has_data(task, Path(data))]


def reproduce(
    cells: Sequence[Cell],
    place: Place,
    settings: Settings,
    engine: Engine,
    *,
    stop_after: float = math.inf,
    report: Callable[[Cell, float | None, str | None], None] | None = None,
) -> dict[str, str]:
    """Run the cells that have no result yet; return what failed."""
    Store(Path(place.output)).open(_about(place, settings))
    return GridRun(place, cells, engine, report).run(stop_after)


def find_store(place: Place, settings: Settings) -> Store:
    """Return the results folder of a model, which may be still to make; another model's is refused."""
    store = Store(Path(place.output))
    store.check(_about(place, settings))
    return store


def _about(place: Place, settings: Settings) -> dict[str, str]:
    return {"version": __version__, "model": place.model, "settings": settings.name}


def make_engine(name: str, place: Place, workers: int | None, address: str | None = None) -> Engine:
    """Return the engine of a name: process, workers or ray."""
    if name == "ray":
        return OnRay(place, workers, address)
    return InProcess(place) if (workers or 1) == 1 else Workers(place, workers or 1)


def layers_of(model: str) -> int:
    """Return the number of layers of a model by its configuration."""
    config = load_config(model)
    return int(getattr(config, "num_hidden_layers", 0) or getattr(config, "n_layers", 0))


def _has_data(task: str, data: Path) -> bool:
    return (data / GLUE[f"glue/{task}"].folder / "train.tsv").is_file()
