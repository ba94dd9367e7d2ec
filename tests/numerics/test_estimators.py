from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import CalibrationError, SpecError
from octavo.numerics import (
    AllMinMax,
    CurrentMinMax,
    HistogramMse,
    HistogramPercentile,
    RangeEstimator,
    RowCrossEntropy,
    RunningMinMax,
    TokenQuantiles,
    by_channel,
    group_index,
)

ONE = torch.zeros(1, dtype=torch.int64)
Maker = Callable[[torch.Tensor], RangeEstimator]

MAKERS: dict[str, Maker] = {
    "current": CurrentMinMax,
    "running": RunningMinMax,
    "all": AllMinMax,
    "percentile": lambda index: HistogramPercentile(index, percent=99),
    "mse": lambda index: HistogramMse(index, bits=4, candidates=20),
    "tokens": TokenQuantiles,
    "cross-entropy": lambda index: RowCrossEntropy(index, bits=4, candidates=20),
}
every_estimator = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
by_group = [name for name in MAKERS if name not in ("tokens", "cross-entropy")]
invariant = ["all", "percentile", "mse"]


@pytest.mark.parametrize("value", [math.nan, math.inf], ids=["NaN", "infinity"])
@every_estimator
def test_what_is_not_finite_in_an_earlier_batch_is_not_forgotten(make: Maker, value: float) -> None:
    """Nobody looks at a batch before its range is asked for: a GPU would wait for each answer."""
    estimator = make(ONE)
    batches = torch.randn(2, 4, 8)
    batches[0, 1, 2] = value
    with pytest.raises(CalibrationError, match="holds NaN or infinity"):
        for batch in batches:
            estimator.observe(batch if estimator.reads_rows else by_channel(batch, None))
            estimator.commit()
        estimator.range()


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1]], ids=["in order", "permuted"])
@pytest.mark.parametrize("kind", [CurrentMinMax, AllMinMax])
def test_channels_that_stand_apart_have_the_ranges_of_their_groups(
    kind: type[RangeEstimator], order: list[int]
) -> None:
    x, index = torch.randn(3, 9), torch.tensor(order)
    estimator = kind(index)
    estimator.observe(x)
    minimum, maximum = estimator.range()
    assert torch.equal(minimum[index], x.amin(1)) and torch.equal(maximum[index], x.amax(1))


def watch(estimator: RangeEstimator, *batches: torch.Tensor) -> list[list[float]]:
    for batch in batches:
        estimator.observe(batch)
        estimator.commit()
    return [end.tolist() for end in estimator.range()]


def test_current_min_max_forgets_earlier_batches() -> None:
    assert watch(CurrentMinMax(ONE), torch.tensor([[-9.0, 9.0]]), torch.tensor([[1.0, 2.0]])) == [[1], [2]]


def test_running_min_max_by_hand() -> None:
    batches = torch.tensor([[-1.0, 1.0]]), torch.tensor([[-3.0, 2.0]]), torch.tensor([[0.0, 4.0]])
    minimum, maximum = watch(RunningMinMax(ONE, momentum=0.75), *batches)
    assert minimum == [pytest.approx(0.75 * (0.75 * -1 + 0.25 * -3))]
    assert maximum == [pytest.approx(0.75 * (0.75 * 1 + 0.25 * 2) + 0.25 * 4)]


def test_all_min_max_remembers_everything() -> None:
    assert watch(AllMinMax(ONE), torch.tensor([[-9.0, 1.0]]), torch.tensor([[1.0, 2.0]])) == [[-9], [2]]


@pytest.mark.parametrize("name", ["current", "running", "all"])
def test_pieces_of_a_batch_count_as_one_batch(name: str) -> None:
    x = torch.randn(4, 20)
    whole, pieces = MAKERS[name](torch.arange(4)), MAKERS[name](torch.arange(4))
    pieces.observe(x[:, :7])
    pieces.observe(x[:, 7:])
    pieces.commit()
    assert watch(whole, x) == [end.tolist() for end in pieces.range()]


@every_estimator
def test_an_open_batch_counts(make: Maker) -> None:
    x = torch.randn(1, 50)
    opened = make(ONE)
    opened.observe(x)
    assert [end.tolist() for end in opened.range()] == watch(make(ONE), x)


@given(st.data(), st.sampled_from(invariant))
@settings(max_examples=12, deadline=None)
def test_cutting_into_batches_does_not_matter(data: st.DataObject, name: str) -> None:
    x = torch.randn(4, 60, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    cuts = sorted(data.draw(st.lists(st.integers(0, 60), max_size=4)))
    index = group_index(4, data.draw(st.integers(1, 4)))
    assert watch(MAKERS[name](index), *torch.tensor_split(x, cuts, dim=1)) == watch(MAKERS[name](index), x)


@pytest.mark.parametrize("name", by_group)
@given(st.permutations(range(5)))
@settings(max_examples=3, deadline=None)
def test_groups_at_their_limits_are_per_tensor_and_per_embedding(name: str, order: list[int]) -> None:
    x = torch.randn(2, 30, 5, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 6)
    per_tensor = watch(MAKERS[name](ONE), by_channel(x, None))
    assert watch(MAKERS[name](group_index(5, 1, torch.tensor(order))), by_channel(x, -1)) == per_tensor
    per_embedding = watch(MAKERS[name](torch.arange(5)), by_channel(x, -1))
    index = group_index(5, 5, torch.tensor(order))
    permuted = watch(MAKERS[name](index), by_channel(x, -1))
    assert [[end[group] for group in index.tolist()] for end in permuted] == per_embedding


@pytest.mark.parametrize("name", by_group)
def test_groups_equal_separate_estimators_of_their_channels(name: str) -> None:
    x = torch.randn(6, 200, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 7).unsqueeze(1)
    index = torch.tensor([2, 0, 1, 1, 0, 2])
    minimum, maximum = watch(MAKERS[name](index), x)
    for group in range(3):
        low, high = watch(MAKERS[name](ONE), x[index == group].view(1, -1))
        assert (minimum[group], maximum[group]) == pytest.approx((low[0], high[0]))


@pytest.mark.parametrize("name", by_group)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_are_observed_as_float32(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(1, 50).to(dtype)
    estimator = MAKERS[name](ONE)
    assert watch(estimator, x) == watch(MAKERS[name](ONE), x.float())
    assert all(end.dtype == torch.float32 for end in estimator.range())


@every_estimator
def test_no_data_is_an_error(make: Maker) -> None:
    estimator = make(ONE)
    estimator.observe(torch.zeros(1, 0))
    estimator.commit()
    with pytest.raises(CalibrationError, match="saw no data"):
        estimator.range()


@every_estimator
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_data_that_is_not_finite_is_an_error(make: Maker, value: float) -> None:
    with pytest.raises(CalibrationError, match="NaN or infinity"):
        watch(make(ONE), torch.tensor([[1.0, value, 2.0]]))


@pytest.mark.parametrize("name", by_group)
def test_another_number_of_channels_is_an_error(name: str) -> None:
    with pytest.raises(CalibrationError, match="3 channels were observed by an estimator of 2"):
        MAKERS[name](torch.arange(2)).observe(torch.zeros(3, 4))


@pytest.mark.parametrize("name", ["percentile", "mse", "tokens", "cross-entropy"])
def test_memory_does_not_grow_with_the_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RowCrossEntropy, "CAPACITY", 256)
    monkeypatch.setattr(TokenQuantiles, "CAPACITY", 8)
    estimator = MAKERS[name](ONE)
    for _ in range(20):
        estimator.observe(torch.randn(1, 64))
    if isinstance(estimator, RowCrossEntropy):
        assert estimator._rows.rows().numel() <= 256
    elif isinstance(estimator, TokenQuantiles):
        assert estimator._ends.rows().numel() <= 8
    else:
        assert estimator.histogram.counts.shape == (1, 4096)


def test_importance_reaches_the_mse_estimator() -> None:
    x = torch.randn(2, 300, generator=torch.Generator().manual_seed(0)) * torch.tensor([[1.0], [20.0]])
    index, importance = torch.zeros(2, dtype=torch.int64), torch.tensor([1.0, 1e-6])
    found = watch(HistogramMse(index, bits=4, importance=importance), x[:, :100], x[:, 100:])
    assert found == watch(HistogramMse(index, bits=4, importance=importance), x)
    assert found[1][0] < 0.5 * watch(HistogramMse(index, bits=4), x)[1][0]


def test_cross_entropy_keeps_rows_apart() -> None:
    rows = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    cut, whole = (RowCrossEntropy(ONE, bits=4) for _ in range(2))
    assert watch(cut, rows[:10], rows[10:]) == watch(whole, rows)
    assert watch(RowCrossEntropy(ONE, bits=4), rows.view(128, 2)) != watch(whole)


def test_cross_entropy_needs_rows() -> None:
    with pytest.raises(
        CalibrationError, match=r"shape \(2, 3, 4\) were observed; give them as \(rows, classes\)"
    ):
        RowCrossEntropy(ONE).observe(torch.zeros(2, 3, 4))


def test_cross_entropy_is_per_tensor_only() -> None:
    with pytest.raises(SpecError, match="cross-entropy with 3 groups"):
        RowCrossEntropy(torch.arange(3))


@pytest.mark.parametrize("kind", [type(make(ONE)) for make in MAKERS.values()])
def test_every_estimator_is_made_for_a_grid_by_name(kind: type[RangeEstimator]) -> None:
    estimator = kind(ONE, bits=4, symmetric=True)
    assert (estimator.bits, estimator.symmetric) == (4, True)
    with pytest.raises(SpecError, match="17 bits were asked for; use 2 to 16"):
        kind(ONE, bits=17, symmetric=True)


@pytest.mark.parametrize("name", ["mse", "cross-entropy"])
def test_a_search_is_on_the_grid_that_is_asked_for(name: str) -> None:
    rows = torch.rand(40, 5, generator=torch.Generator().manual_seed(0))
    kind = {"mse": HistogramMse, "cross-entropy": RowCrossEntropy}[name]
    x = rows if kind.reads_rows else rows.view(1, -1)
    minimum, _ = watch(kind(ONE, bits=4, symmetric=True), x)
    signed_minimum, signed_maximum = watch(kind(ONE, bits=4, symmetric=True, signed=True), x)
    assert minimum == [0] and signed_minimum == [-signed_maximum[0]]


def test_what_compares_rows_reads_rows() -> None:
    assert [name for name, make in MAKERS.items() if make(ONE).reads_rows] == ["tokens", "cross-entropy"]


def test_token_quantiles_by_hand() -> None:
    """Three of four tokens have their largest value at 3 or below, their smallest at -2 or above."""
    tokens = torch.tensor([[0.0, 1.0], [-2.0, 3.0], [-1.0, 2.0], [-900.0, 4e7]])
    assert watch(TokenQuantiles(ONE, keep=0.75), tokens) == [[-2], [3]]
    assert watch(TokenQuantiles(ONE, keep=0.76), tokens) == [[-900], [4e7]]
    assert watch(TokenQuantiles(ONE, keep=0.01), tokens) == [[0], [1]]


def test_token_quantiles_of_every_token_are_all_min_max() -> None:
    tokens = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([0, 0, 1, 1, 2, 2])
    assert watch(TokenQuantiles(index, keep=1.0), tokens) == watch(AllMinMax(index), tokens.T)


def test_token_quantiles_in_groups_equal_separate_ones() -> None:
    tokens = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    index = torch.tensor([2, 0, 1, 1, 0, 2])
    low, high = watch(TokenQuantiles(index, keep=0.9), tokens)
    for group in range(3):
        assert watch(TokenQuantiles(ONE, keep=0.9), tokens[:, index == group]) == [
            [low[group]],
            [high[group]],
        ]


def test_token_quantiles_do_not_depend_on_batches() -> None:
    tokens = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    cut = watch(TokenQuantiles(ONE, keep=0.9), tokens[:7], tokens[7:40], tokens[40:])
    assert cut == watch(TokenQuantiles(ONE, keep=0.9), tokens)


def test_token_quantiles_need_tokens() -> None:
    with pytest.raises(CalibrationError, match=r"shape \(3, 4\) were observed by an estimator of 2 channels"):
        TokenQuantiles(torch.arange(2)).observe(torch.zeros(3, 4))


@pytest.mark.parametrize("momentum", [-0.1, 1.0])
def test_senseless_momentum_is_refused(momentum: float) -> None:
    with pytest.raises(SpecError, match=f"momentum {momentum}"):
        RunningMinMax(ONE, momentum=momentum)
