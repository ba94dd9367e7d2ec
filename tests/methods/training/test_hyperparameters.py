from __future__ import annotations

import pytest

from octavo.errors import SpecError
from octavo.methods.training.hyperparameters import Hyperparameters


def test_the_rate_rises_in_the_warm_up_and_falls_to_zero() -> None:
    hyper = Hyperparameters(learning_rate=1.0, warmup=0.1)
    rates = [hyper.rate(step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * step for step in range(1, 11)])
    assert max(rates) == 1.0 and rates[10] == 1.0
    assert rates[-1] == pytest.approx(1 / 90)


def test_without_warm_up_it_starts_at_its_maximum() -> None:
    assert Hyperparameters(learning_rate=1.0).rate(0, 4) == 1.0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("learning_rate", 0, "learning_rate must be positive, got 0"),
        ("epochs", 1.5, "epochs must be a whole number, got 1.5"),
        ("warmup", 1, "warmup must be at least 0 and below 1, got 1"),
        ("keep", "worst", "keep must be 'best' or 'last', got 'worst'"),
    ],
)
def test_senseless_values_are_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Hyperparameters(**{"learning_rate": 1e-4, field: value})  # type: ignore[arg-type]
