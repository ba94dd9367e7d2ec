from __future__ import annotations

from typing import Any

from octavo.experiments.cell import Cell
from octavo.experiments.estimate import estimate, total_seconds
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.spec.presets import recipe


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


def test_steps_are_counted_over_the_published_data() -> None:
    (only,) = estimate([trained("fp32", "mrpc")], [])
    assert (only.steps, only.seconds) == (2 * 459, None)  # 3668 examples in batches of 8
    assert total_seconds([only]) is None


def test_time_is_that_of_the_nearest_cells() -> None:
    done = [
        result(trained("fp32", "mrpc", seed), seconds, 100)
        for seed, seconds in ((0, 10.0), (1, 20.0), (2, 90.0))
    ]
    quantized = Cell(row="w8a8", task="mrpc", method="quantize", seed=0, recipe=recipe("w8a8"))
    done.append(result(quantized, 7.0, None))
    found = estimate([trained("fp32", "mrpc", 3), trained("fp32", "rte"), quantized], done)
    assert [each.seconds for each in found] == [0.2 * 918, 0.2 * 2 * 312, 7.0]
    assert total_seconds(found) == 0.2 * 918 + 0.2 * 624 + 7.0
