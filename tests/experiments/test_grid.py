from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from octavo.experiments.cell import Cell
from octavo.experiments.engine import OUT_OF_MEMORY, Outcome
from octavo.experiments.grid import GridRun, choose_start, float_cells, grid_cells
from octavo.experiments.render import render_details, render_figure, render_table
from octavo.experiments.results import read_results
from octavo.experiments.runner import RunConfiguration
from octavo.experiments.settings import Settings
from octavo.experiments.summary import summarize
from octavo.experiments.table import Table, load_table, parse_table

EQUAL = """octavo: 1
name: mine
title: Mine
source: here
tasks: [mrpc]
rows:
- {name: first, title: First, method: quantize, recipe: w8a8, seeds: 2}
- {name: second, title: Second, method: quantize, recipe: w8a8, seeds: 3}
- {name: other, title: Other, method: quantize, recipe: w4a8, seeds: 1}
"""
SETTINGS = Settings(name="test", finetune={"mrpc": {"learning_rate": [1e-4, 2e-4]}})


class FakeEngine:
    """Scores every cell at once by a rule; the cells in `broken` fail, those in `large` beside others."""

    def __init__(
        self,
        configuration: RunConfiguration,
        slots: int = 3,
        broken: tuple[str, ...] = (),
        large: tuple[str, ...] = (),
    ) -> None:
        self.configuration, self.slots, self.broken, self.large = configuration, slots, broken, large
        self.results = configuration.results()
        self.queue: list[tuple[Cell, Cell | None]] = []
        self.done: list[tuple[Cell, Cell | None]] = []
        self.closed = False

    @property
    def free(self) -> int:
        return self.slots - len(self.queue)

    def submit(self, cell: Cell, start: Cell | None) -> None:
        self.queue.append((cell, start))

    def wait(self, seconds: float) -> list[Outcome]:
        cell, start = self.queue.pop(0)
        if cell.row in self.broken:
            return [(cell, None, "it broke")]
        if cell.row in self.large and self.queue:
            return [(cell, None, f"{OUT_OF_MEMORY}: CUDA out of memory")]
        self.done.append((cell, start))
        score = self.score(cell)
        if cell.method == "finetune":
            self.configuration.fine_tuned().write(cell, {"weight": torch.zeros(1)}, {})
        data = {"train": {"partial": True}, "dev": {"partial": False}}
        self.results.put(cell, {"score": score, "data": data})
        return [(cell, score, None)]

    @staticmethod
    def score(cell: Cell) -> float:
        rate = cell.hyper.learning_rate if cell.hyper is not None else 0.0
        return 80.0 + cell.seed + (5.0 if rate == 2e-4 else 0.0) - (3.0 if cell.method == "quantize" else 0.0)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def configuration(tmp_path: Path) -> RunConfiguration:
    return RunConfiguration(model="m", data=None, output=str(tmp_path / "results"), device="cpu")


def main_table() -> Table:
    return load_table("main")


def cells(task: str = "mrpc") -> list[Cell]:
    return grid_cells([main_table()], [task], SETTINGS, layers=2)


def test_cells_of_a_table_with_their_seeds() -> None:
    found = cells()
    count = {row: sum(cell.row == row for cell in found) for row in ("fp32", "w8a8", "w8a8-qat")}
    assert count == {"fp32": 10, "w8a8": 5, "w8a8-qat": 3}
    assert len({cell.path for cell in found}) == len(found)


def test_quantization_starts_from_the_median_seed_of_the_best_setting(
    configuration: RunConfiguration,
) -> None:
    engine = FakeEngine(configuration)
    assert GridRun(configuration, cells(), engine).run() == {}
    starts = {start.path for cell, start in engine.done if start is not None}
    assert starts == {"mrpc/fp32/lr0.0002-bs8-e3-seed-2.json"}
    assert engine.closed
    methods = [cell.method for cell, _ in engine.done]
    assert methods[:10] == ["finetune"] * 10


def test_a_rerun_does_only_what_is_missing(configuration: RunConfiguration) -> None:
    GridRun(configuration, cells(), FakeEngine(configuration)).run()
    removed = next(cell for cell in cells() if cell.row == "w8a8")
    (Path(configuration.output) / removed.path).unlink()
    engine = FakeEngine(configuration)
    GridRun(configuration, cells(), engine).run()
    assert [cell.path for cell, _ in engine.done] == [removed.path]


def test_parameters_that_are_gone_are_made_anew(configuration: RunConfiguration) -> None:
    GridRun(configuration, cells(), FakeEngine(configuration)).run()
    start = choose_start(configuration.results(), "mrpc", float_cells("mrpc", SETTINGS))
    assert start is not None
    (configuration.fine_tuned().folder / start.path).with_suffix(".safetensors").unlink()
    removed = next(cell for cell in cells() if cell.row == "w8a8")
    (Path(configuration.output) / removed.path).write_text("damaged", encoding="utf-8")
    engine = FakeEngine(configuration)
    GridRun(configuration, cells(), engine).run()
    assert [cell.path for cell, _ in engine.done] == [start.path, removed.path]


def test_a_failed_cell_costs_only_itself(configuration: RunConfiguration) -> None:
    engine = FakeEngine(configuration, broken=("w8a8-qat",))
    failed = GridRun(configuration, cells(), engine).run()
    assert len(failed) == 3 and set(failed.values()) == {"it broke"}
    assert len(engine.done) == len(cells()) - 3


def test_no_more_trainings_run_at_once_than_asked_for(configuration: RunConfiguration) -> None:
    most = {"train": 0, "all": 0}

    class Watched(FakeEngine):
        def submit(self, cell: Cell, start: Cell | None) -> None:
            super().submit(cell, start)
            most["train"] = max(most["train"], sum(each.method != "quantize" for each, _ in self.queue))
            most["all"] = max(most["all"], len(self.queue))

    engine = Watched(configuration, slots=4)
    assert GridRun(configuration, cells(), engine, trainings=2).run() == {}
    assert len(engine.done) == len(cells()) and most == {"train": 2, "all": 4}
    # starts that are gone are trainings as well
    for folder in (Path(configuration.output) / ".work").iterdir():
        shutil.rmtree(folder)
    for cell in cells():
        if cell.method == "quantize":
            (Path(configuration.output) / cell.path).unlink(missing_ok=True)
    most.update(train=0, all=0)
    assert GridRun(configuration, cells(), Watched(configuration, slots=4), trainings=1).run() == {}
    assert most["train"] == 1


@pytest.mark.parametrize("row", ["w8a8-qat", "fp32"])
def test_cells_that_others_left_no_memory_for_are_tried_again(
    configuration: RunConfiguration, row: str
) -> None:
    engine = FakeEngine(configuration, large=(row,))
    assert GridRun(configuration, cells(), engine).run() == {}
    assert len(engine.done) == len(cells())
    alone = {cell.path for cell, _ in engine.done if cell.row == row}
    assert len(alone) == sum(cell.row == row for cell in cells())
    # not among fewer seeds than there are
    assert configuration.results().start("mrpc") == "mrpc/fp32/lr0.0002-bs8-e3-seed-2.json"


def test_a_cell_that_finds_no_memory_alone_has_failed(configuration: RunConfiguration) -> None:
    engine = FakeEngine(configuration, slots=1)
    engine.wait = lambda seconds: [(engine.queue.pop(0)[0], None, f"{OUT_OF_MEMORY}: 2 GiB")]  # type: ignore[method-assign]
    failed = GridRun(configuration, cells(), engine).run()
    assert failed[cells()[0].path] == f"{OUT_OF_MEMORY}: 2 GiB"


def test_without_a_start_nothing_is_quantized(configuration: RunConfiguration) -> None:
    failed = GridRun(configuration, cells(), FakeEngine(configuration, broken=("fp32",))).run()
    assert failed["mrpc/w8a8/seed-0.json"] == "there is no fine-tuned model to start from"


def test_time_over_leaves_the_rest_for_later(configuration: RunConfiguration) -> None:
    engine = FakeEngine(configuration)
    GridRun(configuration, cells(), engine).run(stop_after=0.0)
    assert engine.done == [] and engine.closed


def equal_cells() -> list[Cell]:
    return grid_cells([parse_table(EQUAL, "mine.yaml")], ["mrpc"], SETTINGS, layers=2)


def quantized(engine: FakeEngine) -> list[str]:
    return [f"{cell.row} {cell.seed}" for cell, _ in engine.done if cell.method == "quantize"]


@pytest.mark.parametrize("slots", [1, 3])
def test_an_experiment_of_two_rows_runs_once(configuration: RunConfiguration, slots: int) -> None:
    engine, reported = FakeEngine(configuration, slots), []
    run = GridRun(configuration, equal_cells(), engine, lambda cell, *_: reported.append(cell))
    assert run.run() == {}
    assert quantized(engine) == ["first 0", "first 1", "second 2", "other 0"]
    assert [cell for cell, _ in engine.done] == reported
    results = configuration.results()
    assert results.missing(equal_cells()) == []
    first, second = (
        next(r for r in results.all() if r["cell"]["row"] == row and r["cell"]["seed"] == 1)
        for row in ("first", "second")
    )
    assert first["score"] == second["score"]


def test_a_result_is_taken_over_as_soon_as_it_is_there(configuration: RunConfiguration) -> None:
    engine = FakeEngine(configuration)
    there: list[bool] = []

    def report(cell: Cell, score: float | None, failure: str | None) -> None:
        if cell.row == "first":
            twin = next(each for each in equal_cells() if (each.row, each.seed) == ("second", cell.seed))
            there.append(configuration.results().get(twin) is not None)

    GridRun(configuration, equal_cells(), engine, report).run()
    assert there == [True, True]


def test_a_run_that_was_cut_before_a_result_was_taken_over_does_so_later(
    configuration: RunConfiguration,
) -> None:
    """The process that runs a cell may write its result while the one that hands out cells is killed."""
    GridRun(
        configuration, [cell for cell in equal_cells() if cell.row != "second"], FakeEngine(configuration)
    ).run()
    engine = FakeEngine(configuration)
    assert GridRun(configuration, equal_cells(), engine).run() == {}
    assert quantized(engine) == ["second 2"]
    assert configuration.results().missing(equal_cells()) == []


def test_a_result_that_is_run_anew_is_taken_over_before(configuration: RunConfiguration) -> None:
    """The best ranges of a task are others by now: an old result of their row is that of the search."""
    GridRun(configuration, equal_cells(), FakeEngine(configuration)).run()
    results, other = configuration.results(), equal_cells()[-1]
    searched = [cell for cell in equal_cells() if cell.row in ("first", "second") and cell.seed == 0]
    results.put(replace(searched[0], row=other.row), {"score": 50.0})
    for cell in searched:
        (Path(configuration.output) / cell.path).unlink()
    engine = FakeEngine(configuration)
    assert GridRun(configuration, equal_cells(), engine).run() == {}
    assert quantized(engine) == ["other 0"]
    scores = [(results.get(cell) or {})["score"] for cell in [*searched, other]]
    assert scores == [50.0, 50.0, FakeEngine.score(other)]


def test_an_experiment_of_two_rows_that_fails_is_not_tried_by_the_other(
    configuration: RunConfiguration,
) -> None:
    engine = FakeEngine(configuration, broken=("first",))
    failed = GridRun(configuration, equal_cells(), engine).run()
    assert set(failed) == {"mrpc/first/seed-0.json", "mrpc/first/seed-1.json"}
    assert quantized(engine) == ["second 2", "other 0"]
    engine = FakeEngine(configuration)
    assert GridRun(configuration, equal_cells(), engine).run() == {}
    assert quantized(engine) == ["first 0", "first 1"]
    assert configuration.results().missing(equal_cells()) == []


def test_long_trainings_go_first(configuration: RunConfiguration) -> None:
    both = grid_cells([main_table()], ["sst2", "mrpc"], SETTINGS, 2)
    found = GridRun(configuration, both, FakeEngine(configuration)).waiting
    assert found[0].path.startswith("sst2/fp32")
    assert [cell.method for cell in found].index("quantize") > 10


def test_rows_that_are_scored_text_by_text_begin_before_all_that_trainings_do_not_wait_for(
    configuration: RunConfiguration,
) -> None:
    rows = [
        each for each in load_table("overview").rows if each.name in ("fp32", "q8bert", "w8a8", "w8a8-qat")
    ]
    both = grid_cells([replace(load_table("overview"), rows=tuple(rows))], ["sst2", "mrpc"], SETTINGS, 2)
    found = GridRun(configuration, both, FakeEngine(configuration)).waiting
    after = [cell.row for cell in found if cell.method != "finetune"]
    assert after[:2] == ["q8bert", "q8bert"]


def test_trainings_are_as_long_as_their_files(configuration: RunConfiguration) -> None:
    """A hundredth of the larger task's file makes it the smaller one."""
    both = grid_cells([main_table()], ["sst2", "mrpc"], SETTINGS, 2)
    few = Cell(row="fp8", task="sst2", method="quantize", seed=0)
    configuration.results().put(few, {"data": {"train": {"examples": 673}}})
    found = GridRun(configuration, both, FakeEngine(configuration)).waiting
    assert found[0].path.startswith("mrpc/fp32")


def test_a_result_of_another_recipe_is_not_taken(configuration: RunConfiguration) -> None:
    GridRun(configuration, cells(), FakeEngine(configuration)).run()
    cell = next(cell for cell in cells() if cell.row == "w8a8")
    file = Path(configuration.output) / cell.path
    data = json.loads(file.read_text(encoding="utf-8"))
    data["cell"]["recipe"]["weights"]["bits"] = 4
    file.write_text(json.dumps(data), encoding="utf-8")
    assert configuration.results().get(cell) is None


def test_tables_show_ours_beside_the_papers(configuration: RunConfiguration) -> None:
    GridRun(configuration, cells(), FakeEngine(configuration)).run()
    scores = summarize(configuration.results().all())
    text = render_table(main_table(), scores)
    assert "| FP32 | 87.00 (88.36)<br>85.00 to 89.00 | 87.00 (88.36) |  |" in text
    assert "| W8A8 PTQ | 79.00 (88.53)<br>77.00 to 81.00 | 79.00 (88.53) | -8.00 (+0.17) |" in text
    assert "| fp32 | MRPC* | 87.00 | 85.00 | 89.00 | 5 | 0.0002 | 8 | 3 |" in render_details(scores)
    figure = render_figure(main_table(), scores)
    assert figure.startswith("<svg") and "-8.00" in figure and "&amp;" not in figure


def test_a_table_without_results_says_so() -> None:
    assert "No results yet" in render_table(main_table(), {})


@pytest.mark.parametrize(
    ("folder", "tables"),
    [("minilm", ("overview", "ours")), ("mpnet-base", ("overview", "ours", "initial", "range-estimators"))],
)
def test_the_pages_of_results_are_what_the_results_say(folder: str, tables: tuple[str, ...]) -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / f"results-{folder}.md").read_text(encoding="utf-8")
    scores = summarize(read_results(root / "results" / folder).all())
    for name in tables:
        assert render_table(load_table(name), scores) in page
    assert render_details(scores) in page
    if folder == "minilm":
        figure = (root / "docs" / "results-minilm-overview.svg").read_text(encoding="utf-8")
        assert figure == render_figure(load_table("overview"), scores)
