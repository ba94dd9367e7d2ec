from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import CalibrationError, SpecError
from octavo.numerics import Histogram, percentile_of_histogram, percentile_range

ONE = torch.zeros(1, dtype=torch.int64)


@pytest.mark.parametrize("percent", [75.0, 99.0, 99.9])
def test_equals_numpy_within_two_bins(percent: float) -> None:
    x = torch.randn(1, 100_000, generator=torch.Generator().manual_seed(0))
    minimum, maximum = percentile_range(x, ONE, percent)
    expected = np.percentile(x.double().numpy(), [100 - percent, percent])
    assert [minimum.item(), maximum.item()] == pytest.approx(expected, abs=2 * 16 / 4096)


@given(st.integers(0, 1000), st.sampled_from([99.0, 99.9, 99.99]))
def test_both_ends_are_clipped(seed: int, percent: float) -> None:
    x = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(seed))
    x[0, :2] = torch.tensor([-20.0, 20.0])
    minimum, maximum = percentile_range(x, ONE, percent)
    assert -20 < minimum.item() < 0 < maximum.item() < 20


def test_every_group_has_its_own_percentile() -> None:
    x = torch.arange(1000.0).repeat(2, 1) * torch.tensor([[1.0], [-0.01]])
    minimum, maximum = percentile_range(x, torch.arange(2), 90)
    assert minimum.tolist() == pytest.approx([100, -9], abs=0.5)
    assert maximum.tolist() == pytest.approx([900, -1], abs=0.5)


@given(st.lists(st.floats(-1e5, 1e5, width=32), min_size=1, max_size=20), st.floats(50.1, 100))
def test_never_outside_the_data_and_in_order(values: list[float], percent: float) -> None:
    minimum, maximum = percentile_range(torch.tensor([values]), ONE, percent)
    assert min(values) <= minimum.item() <= maximum.item() <= max(values)


def test_hundred_per_cent_is_the_exact_range() -> None:
    x = torch.randn(1, 999)
    minimum, maximum = percentile_range(x, ONE, 100)
    assert (minimum.item(), maximum.item()) == (x.min().item(), x.max().item())


@pytest.mark.parametrize("percent", [50, 0.001, 100.1])
def test_senseless_percentiles_are_refused(percent: float) -> None:
    with pytest.raises(SpecError, match=f"percentile {percent} was asked for; use a number above 50"):
        percentile_range(torch.ones(1, 1), ONE, percent)


def test_no_data_is_refused() -> None:
    with pytest.raises(CalibrationError, match="saw no data"):
        percentile_of_histogram(Histogram(ONE), 99)
