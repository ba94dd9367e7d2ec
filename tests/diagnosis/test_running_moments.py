from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo.diagnosis.running_moments import RunningMoments


def of(values: torch.Tensor) -> RunningMoments:
    moments = RunningMoments()
    moments.add(values)
    return moments


def test_a_hand_computed_example() -> None:
    found = of(torch.tensor([1.0, 2.0, 3.0, 6.0]))
    assert (found.count, found.minimum, found.maximum, found.mean) == (4, 1.0, 6.0, 3.0)
    assert found.std == pytest.approx(3.5**0.5)  # deviations -2 -1 0 3: squares add up to 14
    assert found.kurtosis == pytest.approx(4 * (16 + 1 + 0 + 81) / 14**2)


def test_scipy_agrees() -> None:
    values = np.random.default_rng(0).standard_t(5, size=5000).astype(np.float32) + 10
    found = of(torch.from_numpy(values))
    assert found.std == pytest.approx(np.std(values.astype(np.float64)), rel=1e-9)
    assert found.kurtosis == pytest.approx(
        scipy.stats.kurtosis(values.astype(np.float64), fisher=False), rel=1e-9
    )


@given(cuts=st.lists(st.integers(0, 1000), max_size=6), shift=st.floats(-1e3, 1e3))
def test_batches_do_not_matter(cuts: list[int], shift: float) -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(1), dtype=torch.float64) ** 3 + shift
    parts = RunningMoments()
    for part in torch.tensor_split(values, sorted(cuts)):
        parts.add(part)
    whole = of(values)
    for name in ("count", "minimum", "maximum", "mean", "std", "kurtosis"):
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-7, abs=1e-9), name


def test_a_constant_has_no_spread() -> None:
    found = of(torch.full((10,), 3.0))
    assert (found.std, found.kurtosis) == (0.0, 0.0)
