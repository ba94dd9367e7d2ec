from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from octavo.numerics.spill import Pieces, smallest_range

RANGES = st.lists(st.tuples(st.floats(0, 50), st.floats(0, 50)), min_size=2, max_size=40)


def rebuilt(x: Tensor, pieces: Pieces) -> Tensor:
    """Add up the clipped copies of every channel, by the equation of the module."""
    low, high = pieces.low, pieces.high
    total = x.clamp(low, high)
    for channel, offset, rest in zip(pieces.source, pieces.offset, pieces.rest, strict=True):
        total[:, channel] += (x[:, channel] - offset).clamp(low, high) - rest
    return total


def ranges(pairs: list[tuple[float, float]]) -> tuple[Tensor, Tensor]:
    low, high = (torch.tensor(ends, dtype=torch.float64) for ends in zip(*pairs, strict=True))
    return -low, high


@pytest.mark.parametrize("symmetric", [False, True], ids=["asymmetric", "symmetric"])
@given(RANGES, st.integers(0, 30), st.sampled_from([2, 4, 8, 16]))
def test_copies_add_up_to_the_channel(
    symmetric: bool, pairs: list[tuple[float, float]], extra: int, bits: int
) -> None:
    minimum, maximum = ranges(pairs)
    pieces = smallest_range(minimum, maximum, extra, bits, symmetric)
    if pieces is None:
        return
    assert len(pieces.source) == len(pieces.offset) == len(pieces.rest) <= extra
    x = minimum + (maximum - minimum) * torch.linspace(0, 1, 41, dtype=torch.float64)[:, None]
    assert torch.allclose(rebuilt(x, pieces), x, rtol=0, atol=2e-5 * (pieces.high - pieces.low))


@given(RANGES, st.integers(0, 30))
def test_ends_are_points_of_the_grid(pairs: list[tuple[float, float]], extra: int) -> None:
    pieces = smallest_range(*ranges(pairs), extra, 8)
    if pieces is not None:
        step = (pieces.high - pieces.low) / 255
        assert abs(pieces.low / step - round(pieces.low / step)) < 1e-6


def test_one_far_channel_goes_on_in_copies() -> None:
    """Nine channels up to 1 and one up to 3, by hand: two copies reach 3, and 2/3 of the range is saved."""
    maximum = torch.tensor([1.0] * 9 + [3.0])
    pieces = smallest_range(torch.zeros(10), maximum, 2, 8)
    assert pieces is not None
    assert pieces.source.tolist() == [9, 9] and pieces.rest.tolist() == [0, 0]
    assert pieces.high == pytest.approx(1, rel=1e-4)
    assert pieces.offset.tolist() == pytest.approx([1, 2], rel=1e-4)


def test_both_sides_spill() -> None:
    minimum, maximum = torch.tensor([-1.0, -1.0, -4.0]), torch.tensor([1.0, 1.0, 4.0])
    pieces = smallest_range(minimum, maximum, 4, 8)
    assert pieces is not None and set(pieces.source.tolist()) == {2}
    assert {pieces.low, pieces.high} == set(pieces.rest.tolist())


@pytest.mark.parametrize(
    ("maximum", "extra"),
    [([1.0, 1.0, 1.0], 2), ([1.0, 1.0, 1.3], 2), ([0.0, 0.0, 0.0], 2), ([1.0, 1.0, 9.0], 0)],
    ids=["equal ranges", "little to gain", "all zero", "no channel to spare"],
)
def test_nothing_is_done_where_noise_would_not_halve(maximum: list[float], extra: int) -> None:
    assert smallest_range(torch.zeros(3), torch.tensor(maximum), extra, 8) is None


def test_a_lowest_value_that_all_channels_share_stays_inside() -> None:
    """GELU's -0.17 between two grid points must not cost every channel a copy."""
    minimum = torch.full((100,), -0.17)
    maximum = torch.cat((torch.ones(99), torch.tensor([25.0])))
    pieces = smallest_range(minimum, maximum, 24, 8)
    assert pieces is not None and pieces.low < -0.16999 and set(pieces.source.tolist()) == {99}
