"""Grids: which cells the rows of tables need, in which order, and what is still missing."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from octavo.errors import OctavoError
from octavo.experiments.cell import Cell
from octavo.experiments.engine import Engine
from octavo.experiments.laboratory import Place
from octavo.experiments.settings import Settings
from octavo.experiments.store import Store
from octavo.experiments.table import Row, Table
from octavo.files import write_file
from octavo.spec import AdaRound

FLOAT_ROW = "fp32"
FLOAT_SEEDS = 5
Report = Callable[[Cell, float | None, str | None], None]


def float_cells(task: str, settings: Settings, seeds: int = FLOAT_SEEDS) -> list[Cell]:
    """Return the FP32 fine-tunings of a task: every setting by every seed."""
    return [
        Cell(row=FLOAT_ROW, task=task, method="finetune", seed=seed, hyper=hyper)
        for hyper in settings.finetuning(task)
        for seed in range(seeds)
    ]


def row_cells(row: Row, task: str, settings: Settings, layers: int) -> list[Cell]:
    """Return the cells of a row on a task."""
    here = row.on(task)
    recipe = here.build_recipe(layers)
    if recipe is None:
        return float_cells(task, settings, here.seeds)
    calibration = settings.calibrating(task, here)
    hypers = settings.training(task, recipe) if here.method == "train" else [None]
    return [
        Cell(
            row=row.name,
            task=task,
            method=here.method,
            seed=seed,
            recipe=recipe,
            hyper=hyper,
            calibration=calibration,
            turn=turn,
        )
        for turn, hyper in enumerate(hypers)
        for seed in range(here.seeds)
    ]


def grid_cells(tables: Sequence[Table], tasks: Sequence[str], settings: Settings, layers: int) -> list[Cell]:
    """Return every cell of some tables once, with the fine-tunings that they start from."""
    cells: dict[str, Cell] = {}
    for table in tables:
        for row in table.rows:
            for task in [task for task in table.tasks if task in tasks]:
                needed = [*float_cells(task, settings), *row_cells(row, task, settings, layers)]
                cells |= {cell.path: cell for cell in needed}
    return list(cells.values())


def by_setting(results: Iterable[tuple[Cell, float]]) -> dict[str, list[tuple[Cell, float]]]:
    """Group the results of one row on one task by the hyper-parameters that were tried."""
    groups: dict[str, list[tuple[Cell, float]]] = {}
    for cell, score in results:
        groups.setdefault(cell.variant, []).append((cell, score))
    return groups


def best_setting(results: Iterable[tuple[Cell, float]]) -> list[tuple[Cell, float]]:
    """Return the results of the setting with the best median; those with fewer seeds done stand behind."""
    groups = by_setting(results).values()
    return max(
        groups, key=lambda group: (len(group), statistics.median(score for _, score in group)), default=[]
    )


def choose_start(store: Store, task: str, cells: Sequence[Cell]) -> Cell | None:
    """Return the fine-tuning that quantization starts from: of the best setting the median seed.

    The choice is written down, so that it stays what it is when more results arrive.
    """
    file = store.folder / task / "start.json"
    if file.is_file():
        chosen = json.loads(file.read_text(encoding="utf-8"))["cell"]
        return next((cell for cell in cells if cell.path == chosen), None)
    scored = [(cell, result["score"]) for cell in cells if (result := store.get(cell)) is not None]
    group = sorted(best_setting(scored), key=lambda pair: pair[1])
    if not group:
        return None
    start = group[(len(group) - 1) // 2][0]
    with write_file(file, force=True) as draft:
        draft.write_text(json.dumps({"cell": start.path}) + "\n", encoding="utf-8")
    return start


class GridRun:
    """Runs the missing cells of a grid: fine-tunings first, the rest as soon as its start is there."""

    def __init__(
        self, place: Place, cells: Sequence[Cell], engine: Engine, report: Report | None = None
    ) -> None:
        self.place, self.engine, self.report = place, engine, report
        self.store = Store(Path(place.output))
        self.cells = list(cells)
        self.waiting = sorted(self.store.missing(self.cells), key=cost, reverse=True)
        self.running: set[str] = set()
        self.failed: dict[str, str] = {}

    def run(self, stop_after: float = math.inf) -> dict[str, str]:
        """Run until everything is done or the time is over; return the failures by cell."""
        ends = time.monotonic() + stop_after
        try:
            while time.monotonic() < ends:
                self._submit()
                if not self.running:
                    break
                finished = self.engine.wait(min(ends - time.monotonic(), 3600.0))
                for cell, score, failure in finished:
                    self._finish(cell, score, failure)
        finally:
            self.engine.close()
        return self.failed

    def _submit(self) -> None:
        for cell in list(self.waiting):
            if self.engine.free <= 0:
                return
            if cell.method == "finetune":
                self._start(cell, None)
            elif not self._busy_with_floats(cell.task):
                self._start_quantized(cell)

    def _start_quantized(self, cell: Cell) -> None:
        start = choose_start(self.store, cell.task, self._floats(cell.task))
        if start is None:
            self.waiting.remove(cell)
            self.failed[cell.path] = "there is no fine-tuned model to start from"
        elif start.path in self.failed:
            self.waiting.remove(cell)
            self.failed[cell.path] = f"its start {start.path} failed"
        elif not self.place.checkpoint(start).is_file():
            self.waiting.insert(0, start)  # the results came from elsewhere: make the parameters anew
            self._start(start, None)
        else:
            self._start(cell, start)

    def _start(self, cell: Cell, start: Cell | None) -> None:
        self.waiting.remove(cell)
        self.running.add(cell.path)
        self.engine.submit(cell, start)

    def _finish(self, cell: Cell, score: float | None, failure: str | None) -> None:
        self.running.discard(cell.path)
        if failure is not None:
            self.failed[cell.path] = failure
        if self.report is not None:
            self.report(cell, score, failure)

    def _floats(self, task: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.method == "finetune" and cell.task == task]

    def _busy_with_floats(self, task: str) -> bool:
        paths = {cell.path for cell in self._floats(task)}
        return bool(paths & self.running) or any(cell.path in paths for cell in self.waiting)


_BETWEEN = 3.0  # quantizing takes seconds: after the longest trainings have begun, before the short ones
_SIZES = {"sst2": 67, "qqp": 364, "mnli": 393, "qnli": 105, "cola": 9, "stsb": 6, "mrpc": 4, "rte": 2}


def cost(cell: Cell) -> tuple[int, float]:
    """Order cells: those that others wait for first, then the long ones, which would else end last alone."""
    if cell.recipe is not None and any(isinstance(entry, AdaRound) for entry in cell.recipe.passes):
        return 0, 0.0  # minutes on any task, and nobody waits for them
    if cell.hyper is None:
        return 2, _BETWEEN
    stage = 3 if cell.method == "finetune" else 1 if cell.turn else 2
    return stage, _SIZES.get(cell.task, 1) * cell.hyper.epochs / cell.hyper.batch_size


def failures_message(failed: dict[str, str]) -> OctavoError:
    """Return the error that a run with failed cells ends with."""
    first = next(iter(failed.items()))
    return OctavoError(
        f"{len(failed)} cells failed (the first is {first[0]}: {first[1]}); run again to retry them"
    )
