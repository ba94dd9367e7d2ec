from __future__ import annotations

import pytest

from octavo.errors import SpecError
from octavo.experiments.grid import row_cells
from octavo.experiments.ranges import Ranges, with_ranges
from octavo.experiments.settings import Settings
from octavo.experiments.table import TableRow
from octavo.spec import MinMax, Mse, RunningMinMax

BEST = Ranges(weights="mse", activations="running-min-max", batch_size=4, batches=16)
SETTINGS = Settings(name="test", calibration={"default": (2, 3)})


def row(recipe: str = "w8a8", ranges: str = "settings") -> TableRow:
    return TableRow(name="r", title="R", method="quantize", recipe=recipe, seeds=1, ranges=ranges)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ranges", "weights", "activations", "calibration"),
    [
        ("settings", MinMax(), RunningMinMax(), (2, 3)),
        ("single", Mse(), MinMax(), (1, 1)),
        ("best", Mse(), RunningMinMax(), (4, 16)),
    ],
)
def test_a_row_says_how_its_ranges_are_found(
    ranges: str, weights: object, activations: object, calibration: tuple[int, int]
) -> None:
    (cell,) = row_cells(row(ranges=ranges), "cola", SETTINGS, 2, {"cola": BEST})
    assert cell.recipe is not None and cell.recipe.weights is not None and cell.recipe.activations is not None
    assert cell.recipe.weights.estimator == weights and cell.recipe.activations.estimator == activations
    assert cell.calibration == calibration


def test_the_papers_choice_counts_where_nothing_else_is_known() -> None:
    (cell,) = row_cells(row(ranges="best"), "rte", SETTINGS, 2)
    assert cell.recipe is not None and cell.recipe.weights is not None
    assert cell.recipe.weights.estimator == Mse() and cell.calibration == (1, 1)
    (cell,) = row_cells(row(ranges="best"), "mine", SETTINGS, 2)
    assert cell.calibration == (1, 16)


def test_low_bit_weights_keep_their_own_estimator() -> None:
    best = Ranges(weights="min-max", activations="min-max", batch_size=1, batches=1)
    assert with_ranges(row("w4a32", "best"), best).estimators == {"activations": "min-max"}


def test_ranges_of_a_row_that_are_no_strings_are_refused() -> None:
    other = TableRow(
        name="r", title="R", method="quantize", recipe="w8a8", estimators={"weights": {"mse": {}}}
    )
    with pytest.raises(SpecError, match="row r: names no estimators, batch size and number of batches"):
        Ranges.of(other)
