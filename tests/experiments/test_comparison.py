from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import DataError, OutputError, SpecError
from octavo.experiments.comparison import ComparisonSettings, compare_recipes
from octavo.graph import Encoder
from octavo.methods import load
from octavo.spec.presets import recipe

WORDS = ("cat", "dog", "bird", "elephant")
TEXTS = tuple(f"{word} sat on the {word} mat number {word[::-1]}" for word in WORDS)
RECIPES = [recipe(name) for name in ("w8a8", "w8a8-mp", "w4a32")]


@pytest.fixture(scope="module")
def encoder(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    return load(tiny_bert_folder())


def question(**changes: Any) -> ComparisonSettings:
    return ComparisonSettings(**{"calibration": TEXTS, "texts": TEXTS, **changes})


def test_rows_hold_medians_over_the_orders_that_matter(encoder: Encoder) -> None:
    rows = {row["recipe"]: row for row in compare_recipes(encoder, RECIPES, question(seeds=(0, 1, 2)))}
    cosines = [entry["cosine"]["mean"] for entry in rows["w8a8"]["seeds"]]
    assert len(set(cosines)) > 1 and rows["w8a8"]["cosine"]["mean"] == statistics.median(cosines)
    assert len(rows["w4a32"]["seeds"]) == 1  # weights do not see the order


def test_the_float_model_runs_once_over_the_texts(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    run = Encoder.__call__

    def counting(self: Encoder, batch: Any) -> Any:
        if type(self) is Encoder:
            calls.append(len(batch["input_ids"]))
        return run(self, batch)

    monkeypatch.setattr(Encoder, "__call__", counting)
    compare_recipes(encoder, RECIPES, question())
    assert sum(calls) == len(question().texts)


def test_finished_measurements_are_not_made_again(
    encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compare_recipes(encoder, RECIPES, question(), folder=tmp_path / "kept")
    monkeypatch.setattr("octavo.experiments.comparison._Bench._measure", None)
    assert compare_recipes(encoder, RECIPES, question(), folder=tmp_path / "kept") == first


def test_a_damaged_file_is_measured_again(encoder: Encoder, tmp_path: Path) -> None:
    first = compare_recipes(encoder, RECIPES[:1], question(), folder=tmp_path / "kept")
    (tmp_path / "kept" / "w8a8-seed-0.json").write_text("{", encoding="utf-8")
    assert compare_recipes(encoder, RECIPES[:1], question(), folder=tmp_path / "kept") == first


def test_progress_reaches_the_total(encoder: Encoder) -> None:
    calls: list[tuple[int, int]] = []
    compare_recipes(encoder, RECIPES, question(), progress=lambda done, total: calls.append((done, total)))
    done, totals = zip(*calls, strict=True)
    assert len(set(totals)) == 1 and done[-1] == totals[0] and list(done) == sorted(done)
    assert (
        len(set(done)) > len(RECIPES) + 1
    )  # it moves while a model runs, so that the time left is known early


def test_bad_questions_are_refused(encoder: Encoder, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one list is empty"):
        question(texts=())
    with pytest.raises(SpecError, match="no seed was given"):
        question(seeds=())
    with pytest.raises(SpecError, match="no recipe was given"):
        compare_recipes(encoder, [], question())
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="holds other files"):
        compare_recipes(encoder, RECIPES, question(), folder=tmp_path)
