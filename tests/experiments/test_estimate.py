from __future__ import annotations

from pathlib import Path
from typing import Any

from octavo.experiments.cell import Cell
from octavo.experiments.estimate import count_steps, estimate, total_seconds
from octavo.experiments.results import Results
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.spec.presets import recipe

QUANTIZED = Cell(row="w8a8", task="mrpc", method="quantize", seed=0, recipe=recipe("w8a8"))


def trained(row: str, task: str, seed: int = 0) -> Cell:
    return Cell(
        row=row,
        task=task,
        method="finetune",
        seed=seed,
        hyper=Hyperparameters(learning_rate=1e-4, batch_size=8, epochs=2),
    )


def result(cell: Cell, seconds: float, steps: int | None) -> dict[str, Any]:
    return {
        "cell": cell.to_dict(),
        "seconds": seconds,
        "training": None if steps is None else {"steps": steps},
    }


def test_steps_are_counted_over_what_the_files_hold(tiny_glue: Path, tmp_path: Path) -> None:
    cells = [trained("fp32", "mrpc"), QUANTIZED]
    steps = count_steps(cells, Results(tmp_path / "results", {}), tiny_glue)
    assert list(steps.values()) == [2 * 6, 0]  # 48 examples in batches of 8, two epochs


def test_steps_are_counted_over_what_results_say_of_the_files(tiny_glue: Path, tmp_path: Path) -> None:
    results = Results(tmp_path / "results", {})
    results.put(QUANTIZED, {"data": {"train": {"examples": 80}}})
    for data in (None, tiny_glue):
        assert list(count_steps([trained("fp32", "mrpc")], results, data).values()) == [2 * 10]


def test_steps_are_counted_over_the_published_data_where_no_file_can_be_read(tmp_path: Path) -> None:
    results = Results(tmp_path / "results", {})
    for data in (None, tmp_path):
        assert list(count_steps([trained("fp32", "mrpc")], results, data).values()) == [2 * 459]


def test_time_is_that_of_the_nearest_cells() -> None:
    done = [
        result(trained("fp32", "mrpc", seed), seconds, 100)
        for seed, seconds in ((0, 10.0), (1, 20.0), (2, 90.0))
    ]
    done.append(result(QUANTIZED, 7.0, None))
    cells = [trained("fp32", "mrpc", 3), trained("fp32", "rte"), QUANTIZED]
    steps = dict(zip([cell.path for cell in cells], (918, 624, 0), strict=True))
    found = estimate(cells, done, steps)
    assert [each.steps for each in found] == [918, 624, 0]
    assert [each.seconds for each in found] == [0.2 * 918, 0.2 * 624, 7.0]
    assert total_seconds(found) == 0.2 * 918 + 0.2 * 624 + 7.0
    (unlike,) = estimate(cells[:1], [], steps)
    assert unlike.seconds is None and total_seconds([unlike]) is None
