from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import SpecError
from octavo.methods.distillation.settings import Distillation


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learn": "biases"}, "learn must be all, ranges or weights, got 'biases'"),
        ({"hidden": -1.0}, "hidden is the weight of a loss, 0 or more, got -1.0"),
        ({"temperature": 0.0}, "temperature must be positive, got 0.0"),
        ({"range_learning_rate": 0.0}, "range_learning_rate must be positive, got 0.0"),
        ({"held_out": 1.0}, "held_out is a share of the texts, above 0 and below 1, got 1.0"),
        ({"calibration": 0}, "calibration must be 1 text or more, got 0"),
        ({"epochs": 0}, "epochs must be positive, got 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Distillation(**given)


def test_the_loop_trains_without_dropout_and_keeps_the_best() -> None:
    hyper = Distillation(epochs=3, learning_rate=1e-3).hyperparameters()
    assert (hyper.epochs, hyper.learning_rate, hyper.keep) == (3, 1e-3, "best")
    assert hyper.attention_dropout == hyper.hidden_dropout == 0


def test_blocks_and_inner_losses_look_inside() -> None:
    assert not Distillation().looks_inside
    for settings in (Distillation(blocks=True), Distillation(hidden=1.0), Distillation(attention=0.5)):
        assert settings.looks_inside
