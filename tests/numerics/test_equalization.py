from __future__ import annotations

import pytest
import torch

from octavo.numerics.equalization import (
    centres,
    gamma_factors,
    power_factors,
    relative_errors,
    smooth_factors,
    threshold_at,
    threshold_factors,
)

RANGES = torch.tensor([16.0, 4.0, 1.0])


def test_powers_go_from_nothing_to_equal_ranges() -> None:
    assert power_factors(RANGES, 0.0).tolist() == [1, 1, 1]
    assert power_factors(RANGES, 0.5).tolist() == [1, 0.5, 0.25]
    assert (RANGES / power_factors(RANGES, 1.0)).tolist() == [16, 16, 16]


def test_a_channel_that_never_moves_keeps_a_thousandth_of_its_column() -> None:
    assert float(power_factors(torch.tensor([1.0, 0.0]), 1.0)[1]) == pytest.approx(1e-3)


def test_smoothing_lets_weights_count() -> None:
    """By hand: 16^.5 / 1^.5 = 4, 4^.5 / 4^.5 = 1, relative to the largest."""
    found = smooth_factors(torch.tensor([16.0, 4.0]), torch.tensor([1.0, 4.0]), 0.5)
    torch.testing.assert_close(found, torch.tensor([1.0, 0.25]))


def test_only_channels_past_the_threshold_are_scaled() -> None:
    assert threshold_factors(RANGES, 4.0).tolist() == [4, 1, 1]
    assert threshold_at(RANGES, 0.0) == pytest.approx(16) and threshold_at(RANGES, 1.0) == pytest.approx(4)
    assert threshold_at(RANGES, 0.5) == pytest.approx(8)


def test_a_weight_of_a_norm_keeps_its_sign_and_some_distance_from_zero() -> None:
    found = gamma_factors(torch.tensor([-2.0, 1.0, 0.0]))
    torch.testing.assert_close(found, torch.tensor([-2.0, 1.0, 2e-3]))


def test_centres_lie_in_the_middle() -> None:
    assert centres(torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 4.0])).tolist() == [1, 3]


def test_one_huge_token_does_not_decide() -> None:
    """By hand: every token is off by a tenth of itself, whatever its size."""
    tokens = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1e6, 0.0]])
    assert float(relative_errors(tokens * 1.1, tokens, tokens)) == pytest.approx(0.01, rel=1e-3)
