from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import SpecError
from octavo.experiments.cell import Cell, searched_fields
from octavo.experiments.grid import grid_cells
from octavo.experiments.settings import Settings
from octavo.experiments.table import load_table, parse_table
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.spec.presets import recipe

HYPER = Hyperparameters(learning_rate=5e-5, attention_dropout=0.1)


def test_names_of_results_stay_what_they_were() -> None:
    cell = Cell(row="fp32", task="cola", method="finetune", seed=3, hyper=HYPER)
    assert cell.path == "cola/fp32/lr5e-05-bs32-e3-seed-3.json"
    cell = Cell(row="w8a8", task="cola", method="quantize", seed=0, recipe=recipe("w8a8"))
    assert cell.path == "cola/w8a8/seed-0.json"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("attention_dropout", [0.0, 0.1, None]),
        ("range_learning_rate", [1e-2, 3e-3]),
        ("hidden_dropout", [0.0, 0.1]),
        ("warmup", [0.0, 0.1]),
        ("max_length", [64, 128]),
        ("clip", [0.5, 1.0]),
        ("keep", ["best", "last"]),
        ("learning_rate", [1.0000001e-4, 1.0000002e-4]),
    ],
)
def test_every_value_of_a_search_has_its_cells(field: str, values: list[object]) -> None:
    settings = Settings(name="t", train={"default": {"mrpc": {field: values}}})
    cells = grid_cells([load_table("main")], ["mrpc"], settings, 2)
    trained = [cell for cell in cells if cell.row == "w8a8-qat"]
    assert len(trained) == 3 * len(values)
    assert len({cell.path for cell in cells}) == len(cells)


def test_only_what_is_searched_stands_in_a_name() -> None:
    others = [HYPER, Hyperparameters(learning_rate=1e-4, attention_dropout=0.1)]
    assert searched_fields(others) == ()
    other = Hyperparameters(learning_rate=5e-5, attention_dropout=0.0)
    assert searched_fields([HYPER, other, None]) == ("attention_dropout",)
    cell = Cell(row="r", task="cola", method="finetune", seed=0, hyper=other, searched=("attention_dropout",))
    assert cell.path == "cola/r/lr5e-05-bs32-e3-attention-dropout-0-seed-0.json"


def test_two_experiments_in_one_file_are_refused() -> None:
    head = "octavo: 1\ntitle: T\nsource: nowhere\nrows: [{name: a, title: A, method: quantize, recipe: %s}]\n"
    tables = [parse_table(f"name: {name}\n" + head % name, name) for name in ("w8a8", "w4a32")]
    with pytest.raises(SpecError, match=r"two experiments would be kept in mrpc/a/seed-0\.json"):
        grid_cells(tables, ["mrpc"], Settings(name="t"), 2)


def test_the_results_in_the_repository_have_their_names() -> None:
    from octavo.experiments.results import read_results

    folder = Path(__file__).parents[2] / "results" / "minilm"
    results = read_results(folder).all()
    assert len(results) == len(list(folder.glob("*/*/*.json"))) > 500
    for result in results:
        cell = result["cell"]
        hyper = None if cell["hyperparameters"] is None else Hyperparameters(**cell["hyperparameters"])
        made = Cell(row=cell["row"], task=cell["task"], method=cell["method"], seed=cell["seed"], hyper=hyper)
        assert (folder / made.path).is_file(), made.path
