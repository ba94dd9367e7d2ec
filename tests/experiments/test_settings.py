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


@pytest.mark.parametrize(
    ("seeds", "cola", "qnli"),
    [
        ("{ranges-*: {qnli: 1}}", 5, 1),
        ("{ranges-*: {qnli: 1, default: 3}}", 3, 1),
        ("{ranges-*: {qnli: 4, default: 3}}", 3, 4),
        ("{ranges-*: {qnli: 4}, '*-1x1': 2}", 2, 2),
    ],
    ids=[
        "the others have the table's",
        "the others have fewer",
        "the others have fewest",
        "the least counts",
    ],
)
def test_settings_may_limit_the_seeds_of_rows_on_single_tasks(
    tmp_path: Path, seeds: str, cola: int, qnli: int
) -> None:
    settings = written(tmp_path, seeds)
    counts = [len(row_cells(ROW, task, settings, layers=2)) for task in ("cola", "qnli")]
    assert counts == [cola, qnli]


@pytest.mark.parametrize(
    "seeds", ["3", "{w8a8: 0}", "{w8a8: many}", "{w8a8: true}", "{w8a8: {qnli: 0}}", "{w8a8: {qnli: [1]}}"]
)
def test_seeds_that_are_no_numbers_are_refused(tmp_path: Path, seeds: str) -> None:
    message = r"mine\.yaml: seeds are a number, 1 or more, for each pattern of rows, or for each of its tasks"
    with pytest.raises(SpecError, match=message):
        written(tmp_path, seeds)


@pytest.mark.parametrize(
    ("task", "hint"), [("qnly", "did you mean 'qnli'"), ("7", "there are cola, .*, default")]
)
def test_seeds_of_a_task_that_does_not_exist_are_refused(tmp_path: Path, task: str, hint: str) -> None:
    with pytest.raises(SpecError, match=rf"mine\.yaml: seeds of w8a8 name no task '?{task}'?; {hint}"):
        written(tmp_path, f"{{w8a8: {{{task}: 1}}}}")


def written(folder: Path, seeds: str) -> Settings:
    """Settings from a file with these seeds."""
    (folder / "mine.yaml").write_text(f"octavo: 1\nseeds: {seeds}\n", encoding="utf-8")
    return load_settings(str(folder / "mine.yaml"))
