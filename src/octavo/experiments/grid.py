"""Grids: which cells the rows of tables need, in which order, and what is still missing."""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

from octavo.errors import OctavoError, SpecError
from octavo.experiments.cell import Cell, searched_fields
from octavo.experiments.engine import OUT_OF_MEMORY, Engine
from octavo.experiments.estimate import count_steps
from octavo.experiments.paper import OTHER_RANGES, RANGES
from octavo.experiments.ranges import Ranges, with_ranges
from octavo.experiments.results import Results
from octavo.experiments.runner import RunConfiguration
from octavo.experiments.settings import Settings
from octavo.experiments.table import Table, TableRow
from octavo.methods.training.seeds import median_by
from octavo.spec import AdaRound, Recipe

FLOAT_ROW = "fp32"
FLOAT_SEEDS = 5
Report = Callable[[Cell, float | None, str | None], None]


def float_cells(task: str, settings: Settings, seeds: int = FLOAT_SEEDS) -> list[Cell]:
    """Return the FP32 fine-tunings of a task: every setting by every seed."""
    hypers = settings.finetuning(task)
    searched = searched_fields(hypers)
    return [
        Cell(row=FLOAT_ROW, task=task, method="finetune", seed=seed, hyper=hyper, searched=searched)
        for hyper in hypers
        for seed in range(seeds)
    ]


def row_cells(
    row: TableRow, task: str, settings: Settings, layers: int, best: Mapping[str, Ranges] = RANGES
) -> list[Cell]:
    """Return the cells of a row on a task; `best` are the best ranges by task."""
    here = with_ranges(row.on(task), best.get(task, OTHER_RANGES))
    recipe = here.build_recipe(layers)
    if recipe is None:
        return float_cells(task, settings, here.seeds)
    calibration = settings.calibrating(task, here)
    hypers = settings.training(task, recipe) if here.method == "train" else [None]
    searched = searched_fields(hypers)
    return [
        Cell(
            row=row.name,
            task=task,
            method=here.method,
            seed=seed,
            recipe=recipe,
            hyper=hyper,
            calibration=calibration,
            searched=searched,
            turn=turn,
        )
        for turn, hyper in enumerate(hypers)
        for seed in range(settings.seeds_of(here, task))
    ]


def grid_cells(
    tables: Sequence[Table],
    tasks: Sequence[str],
    settings: Settings,
    layers: int,
    best: Mapping[str, Ranges] = RANGES,
) -> list[Cell]:
    """Return every cell of some tables once, with the fine-tunings that they start from."""
    cells: dict[str, Cell] = {}
    for table in tables:
        for row in table.rows:
            for task in [task for task in table.tasks if task in tasks]:
                for cell in [*float_cells(task, settings), *row_cells(row, task, settings, layers, best)]:
                    if cells.setdefault(cell.path, cell) != cell:
                        raise SpecError(
                            f"two experiments would be kept in {cell.path} (row {row.name!r} of table "
                            f"{table.name}); give their rows names of their own"
                        )
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


def choose_start(results: Results, task: str, cells: Sequence[Cell], seed: int | None = None) -> Cell | None:
    """Return the fine-tuning that quantization starts from: of the best setting the median, or some seed.

    The choice is written down, so that it stays what it is when more results arrive; a choice among fewer
    seeds than a whole grid has is not.
    """
    chosen = results.start(task)
    if chosen is not None:
        return next((cell for cell in cells if cell.path == chosen), None)
    cells = [cell for cell in cells if seed in (None, cell.seed)]
    scored = [(cell, result["score"]) for cell in cells if (result := results.get(cell)) is not None]
    group = best_setting(scored)
    if not group:
        return None
    start = median_by(lambda pair: pair[1], group)[0]
    if len({cell.seed for cell in cells}) >= FLOAT_SEEDS:
        results.put_start(start)
    return start


class GridRun:
    """Runs the missing cells of a grid: fine-tunings first, the rest as soon as its start is there.

    An experiment of several rows is run once, and the others take its result over. Cells that found no memory
    beside others are tried once more when these are done.

    Arguments:
        trainings: at most so many cells that train run at once, what is left of the engine being for others.
    """

    def __init__(
        self,
        configuration: RunConfiguration,
        cells: Sequence[Cell],
        engine: Engine,
        report: Report | None = None,
        trainings: int | None = None,
    ) -> None:
        self.configuration, self.engine, self.report = configuration, engine, report
        self.trainings = trainings
        self.results, self.starts = configuration.results(), configuration.fine_tuned()
        self.cells = list(cells)
        missing = self.results.missing(self.cells)
        steps = count_steps(missing, self.results, configuration.data)
        missing.sort(key=lambda cell: cost(cell, steps[cell.path]), reverse=True)
        self.known = self.results.done_by_others(missing)
        self.waiting = [cell for cell in missing if cell not in self.known]
        self.running: dict[str, Cell] = {}
        self.crowded_out: list[Cell] = []
        self.failed: dict[str, str] = {}

    def run(self, stop_after: float = math.inf) -> dict[str, str]:
        """Run until everything is done or the time is over; return the failures by cell."""
        ends = time.monotonic() + stop_after
        self.results.begin()
        self._take_over({*self.known.values()})
        try:
            while time.monotonic() < ends:
                self._submit()
                if not self.running:
                    if not self.crowded_out:
                        break
                    self.waiting, self.crowded_out = self.waiting + self.crowded_out, []
                    continue
                for cell, score, failure in self.engine.wait(ends - time.monotonic()):
                    self._finish(cell, score, failure)
        finally:
            self.engine.close()
        return self.failed

    def _submit(self) -> None:
        for cell in list(self.waiting):
            if self.engine.free <= 0:
                return
            if cell.method != "quantize" and not self._may_train():
                continue
            if cell.method == "finetune":
                self._start(cell, None)
            elif not self._busy_with_floats(cell.task):
                self._start_quantized(cell)

    def _start_quantized(self, cell: Cell) -> None:
        seed = self.configuration.start_seed
        start = choose_start(self.results, cell.task, self._floats(cell.task), seed)
        if start is None:
            self.waiting.remove(cell)
            self.failed[cell.path] = "there is no fine-tuned model to start from"
        elif start.path in self.failed:
            self.waiting.remove(cell)
            self.failed[cell.path] = f"its start {start.path} failed"
        elif start not in self.starts:
            if self._may_train():
                self.waiting.insert(0, start)  # the results came from elsewhere: make the parameters anew
                self._start(start, None)
        else:
            self._start(cell, start)

    def _start(self, cell: Cell, start: Cell | None) -> None:
        self.waiting.remove(cell)
        self.running[cell.path] = cell
        self.engine.submit(cell, start)

    def _may_train(self) -> bool:
        running = sum(cell.method != "quantize" for cell in self.running.values())
        return self.trainings is None or running < self.trainings

    def _finish(self, cell: Cell, score: float | None, failure: str | None) -> None:
        del self.running[cell.path]
        if failure is not None and failure.startswith(OUT_OF_MEMORY) and self.running:
            self.crowded_out.append(cell)
            return
        if failure is not None:
            self.failed[cell.path] = failure
        else:
            self._take_over({cell.key})
        if self.report is not None:
            self.report(cell, score, failure)

    def _take_over(self, keys: Set[str]) -> None:
        """Give the results of these keys to the other rows of the same experiments."""
        for cell, key in self.known.items():
            if key in keys:
                self.results.take_over(cell, key)

    def _floats(self, task: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.method == "finetune" and cell.task == task]

    def _busy_with_floats(self, task: str) -> bool:
        paths = {cell.path for cell in self._floats(task)}
        return bool(paths & self.running.keys()) or any(
            cell.path in paths for cell in [*self.waiting, *self.crowded_out]
        )


_BETWEEN = 3000  # quantizing takes seconds: after the longest trainings have begun, before the short ones


def cost(cell: Cell, steps: int) -> tuple[int, int]:
    """Order cells of so many steps: those that others wait for first, then the long ones.

    Long ones would else end last, alone.
    """
    if cell.recipe is not None and any(isinstance(entry, AdaRound) for entry in cell.recipe.passes):
        return 0, 0  # minutes on any task, and nobody waits for them
    if cell.hyper is None:
        return 2, sys.maxsize if cell.recipe is not None and _reads_one_by_one(cell.recipe) else _BETWEEN
    return 3 if cell.method == "finetune" else 1 if cell.turn else 2, steps


def _reads_one_by_one(recipe: Recipe) -> bool:
    """Return whether the development set is scored text by text, as ranges are those of a batch."""
    spec = recipe.activations
    return spec is not None and spec.dynamic and not spec.granularity.is_per_token


def failures_message(failed: dict[str, str]) -> OctavoError:
    """Return the error that a run with failed cells ends with."""
    first = next(iter(failed.items()))
    return OctavoError(
        f"{len(failed)} cells failed (the first is {first[0]}: {first[1]}); run again to retry them"
    )
