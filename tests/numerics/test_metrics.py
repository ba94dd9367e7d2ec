from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from octavo.errors import DataError
from octavo.numerics.metrics import METRICS, accuracy, f1, matthews, pearson, spearman

# 3 true positives, 1 false positive, 2 false negatives, 4 true negatives
SAID = [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
TRUE = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]


def test_accuracy_counts_equal_predictions() -> None:
    assert accuracy(SAID, TRUE) == 0.7


def test_f1_by_hand() -> None:
    assert f1(SAID, TRUE) == pytest.approx(2 * 3 / (2 * 3 + 1 + 2))


def test_f1_without_any_positive_is_zero() -> None:
    assert f1([0, 0], [0, 0]) == 0.0


def test_matthews_by_hand() -> None:
    assert matthews(SAID, TRUE) == pytest.approx((3 * 4 - 1 * 2) / (4 * 5 * 5 * 6) ** 0.5)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2))
def test_matthews_is_the_correlation_of_two_indicators(rows: list[tuple[bool, bool]]) -> None:
    said, true = np.array(rows).T.astype(int)
    expected = 0.0 if said.std() == 0 or true.std() == 0 else np.corrcoef(said, true)[0, 1]
    assert matthews(said, true) == pytest.approx(expected, abs=1e-12)


def test_matthews_of_many_examples_does_not_overflow() -> None:
    said = np.tile(SAID, 40_000)
    assert matthews(said, np.tile(TRUE, 40_000)) == pytest.approx(matthews(SAID, TRUE))


@pytest.mark.parametrize("metric", [matthews, pearson, spearman], ids=lambda metric: metric.__name__)
@pytest.mark.parametrize("constant", [0.0, 1.0, 0.1], ids=str)
def test_a_constant_side_correlates_with_nothing(metric, constant: float) -> None:
    constants = [constant] * 7
    varied = [0, 1, 0, 1, 1, 0, 1]
    assert metric(constants, varied) == 0.0
    assert metric(varied, constants) == 0.0


FLOATS = st.integers(-20, 20).map(lambda number: number / 4)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=2, max_size=60))
def test_correlations_agree_with_scipy(rows: list[tuple[float, float]]) -> None:
    x, y = np.array(rows).T
    if x.std() == 0 or y.std() == 0:
        assert pearson(x, y) == spearman(x, y) == 0.0
        return
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-12)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_ties_share_their_mean_rank() -> None:
    # ranks 1.5, 1.5, 3, 4 against 1, 2, 3, 4
    assert spearman([7, 7, 8, 9], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)


@pytest.mark.parametrize("scale", [1e-200, 1e200], ids=["tiny", "huge"])
def test_pearson_survives_extreme_scales(scale: float) -> None:
    x, y = np.array([1.0, 2.0, 4.0, 3.0]), np.array([1.0, 3.0, 2.0, 5.0])
    assert pearson(x * scale, y) == pytest.approx(pearson(x, y), abs=1e-12)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("sides", [([], []), ([1], [1, 0]), ([[1]], [[1]])], ids=["empty", "unequal", "2-d"])
def test_sides_that_do_not_fit_are_refused(metric, sides: tuple[list[int], list[int]]) -> None:
    with pytest.raises(DataError, match="two vectors of the same length, at least 1"):
        metric(*sides)


def test_nan_is_refused() -> None:
    with pytest.raises(DataError, match="hold NaN or infinity"):
        pearson([float("nan"), 1.0], [1.0, 2.0])
