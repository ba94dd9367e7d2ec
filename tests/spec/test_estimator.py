from __future__ import annotations

import pytest

from octavo.errors import SpecError
from octavo.spec.estimator import (
    ESTIMATORS,
    CrossEntropy,
    Estimator,
    Mse,
    Percentile,
    RunningMinMax,
    TokenQuantile,
)


def test_every_estimator_has_one_name() -> None:
    assert set(ESTIMATORS.values()) == set(Estimator.__subclasses__())


def test_defaults() -> None:
    assert RunningMinMax().momentum == 0.9
    assert Percentile().percent == 99.999
    assert Mse().candidates == CrossEntropy().candidates == 100


@pytest.mark.parametrize("momentum", [-0.1, 1, 1.5, float("nan")], ids=str)
def test_a_momentum_outside_its_interval_is_refused(momentum: float) -> None:
    with pytest.raises(SpecError, match=f"momentum must be at least 0 and below 1, got {momentum}"):
        RunningMinMax(momentum=momentum)


@pytest.mark.parametrize("percent", [50, 100.1, -3, float("inf"), float("nan")], ids=str)
def test_a_percentage_outside_its_interval_is_refused(percent: float) -> None:
    with pytest.raises(SpecError, match=f"percent must be above 50 and at most 100, got {percent}"):
        Percentile(percent=percent)


@pytest.mark.parametrize("keep", [0, 1.01, -1, float("nan")], ids=str)
def test_a_share_of_tokens_outside_its_interval_is_refused(keep: float) -> None:
    with pytest.raises(SpecError, match=f"keep must be a number above 0 and at most 1, got {keep}"):
        TokenQuantile(keep=keep)


def test_numbers_must_be_numbers() -> None:
    with pytest.raises(SpecError, match=r"momentum must be a number, got '0.9'"):
        RunningMinMax(momentum="0.9")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="percent must be a number, got None"):
        Percentile(percent=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Mse, CrossEntropy], ids=lambda kind: kind.__name__)
def test_a_search_needs_candidates(kind: type[Mse | CrossEntropy]) -> None:
    with pytest.raises(SpecError, match="candidates must be an integer of at least 1, got 0"):
        kind(candidates=0)


def test_whole_numbers_become_floats() -> None:
    assert isinstance(Percentile(percent=99).percent, float)
    assert isinstance(RunningMinMax(momentum=0).momentum, float)
