from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import SpecError
from octavo.experiments.grid import row_cells
from octavo.experiments.settings import Settings, load_settings
from octavo.experiments.table import TableRow

ROW = TableRow(name="ranges-mse-mse-1x1", title="", method="quantize", recipe="w8a8")


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [({}, 5), ({"ranges-*": 1}, 1), ({"ranges-*": 3, "*-1x1": 2}, 2), ({"ranges-*": 9}, 5), ({"w8a8": 1}, 5)],
    ids=["none", "a pattern", "the least of several", "never more than the table's", "another row"],
)
def test_settings_may_limit_the_seeds_of_rows(seeds: dict[str, int], expected: int) -> None:
    cells = row_cells(ROW, "cola", Settings(name="test", seeds=seeds), layers=2)
    assert [cell.seed for cell in cells] == list(range(expected))


@pytest.mark.parametrize("seeds", ["3", "{w8a8: 0}", "{w8a8: many}"])
def test_seeds_that_are_no_numbers_are_refused(tmp_path: Path, seeds: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"octavo: 1\nseeds: {seeds}\n", encoding="utf-8")
    with pytest.raises(
        SpecError, match=r"mine\.yaml: seeds are a number, 1 or more, for each pattern of rows"
    ):
        load_settings(str(tmp_path / "mine.yaml"))
