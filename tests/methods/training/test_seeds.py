from __future__ import annotations

from pathlib import Path

from octavo.graph import Encoder
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.labelled import Labelled
from octavo.methods.training.loop import RunOptions
from octavo.methods.training.seeds import finetune_seeds, median_by
from tests.methods import tiny

HYPER = Hyperparameters(learning_rate=1e-3, batch_size=32, epochs=1)


def test_every_seed_trains_a_model_of_its_own(
    tiny_classifier: Encoder, tiny_data: Labelled, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    before = tiny.accuracy(tiny_classifier, tiny_data)
    runs = finetune_seeds(
        tiny_classifier,
        tiny_data,
        HYPER,
        seeds=(3, 4),
        score=lambda encoder: tiny.accuracy(encoder, tiny_data),
        output=tmp_path / "model",
        options=RunOptions(progress=lambda *at: seen.append(at)),
    )
    assert [run.seed for run in runs] == [3, 4]
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert runs[0].encoder is not runs[1].encoder
    assert tiny.accuracy(tiny_classifier, tiny_data) == before
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".model-seed-3.checkpoint", ".model-seed-4.checkpoint"]


def test_the_median_of_an_even_number_is_the_lower_one() -> None:
    assert median_by(float, ["4", "1", "3", "2"]) == "2"
    assert median_by(float, ["4", "1", "3"]) == "3"
