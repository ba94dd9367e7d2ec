from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import SpecError
from octavo.numerics import broadcast, by_channel, group_index


@pytest.mark.parametrize(
    ("axis", "shape"), [(None, (1, 24)), (0, (2, 12)), (1, (3, 8)), (-1, (4, 6))], ids=str
)
def test_by_channel_keeps_every_channel_together(axis: int | None, shape: tuple[int, int]) -> None:
    x = torch.arange(24.0).view(2, 3, 4)
    channels = by_channel(x, axis)
    assert channels.shape == shape
    for number, channel in enumerate(channels):
        expected = x if axis is None else x.select(axis, number)
        assert channel.tolist() == expected.flatten().tolist()


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_by_channel_copies_nothing_for_the_outer_axes(axis: int | None) -> None:
    x = torch.zeros(2, 3, 4)
    assert by_channel(x, axis).data_ptr() == x.data_ptr()


def test_by_channel_accepts_an_empty_tensor() -> None:
    assert by_channel(torch.zeros(0, 5, 4), -1).shape == (4, 0)


def test_group_index_by_hand() -> None:
    assert group_index(7, 3).tolist() == [0, 0, 0, 1, 1, 2, 2]
    order = torch.tensor([6, 0, 1, 5, 2, 3, 4])
    assert group_index(7, 3, order).tolist() == [0, 0, 1, 2, 2, 1, 0]


@pytest.mark.parametrize("width", range(1, 41))
def test_group_sizes_differ_by_at_most_one(width: int) -> None:
    for groups in range(1, width + 1):
        sizes = group_index(width, groups, torch.randperm(width)).bincount()
        assert len(sizes) == groups and sizes.sum() == width
        assert sizes.max() - sizes.min() <= 1


@given(st.permutations(range(12)))
def test_permutation_changes_neither_one_group_nor_a_group_per_channel(order: list[int]) -> None:
    assert group_index(12, 1, torch.tensor(order)).tolist() == [0] * 12
    assert sorted(group_index(12, 12, torch.tensor(order)).tolist()) == list(range(12))


@pytest.mark.parametrize("groups", [0, -1, 5])
def test_impossible_group_counts_are_refused(groups: int) -> None:
    with pytest.raises(SpecError, match=f"{groups} groups were asked for over 4 channels; use 1 to 4"):
        group_index(4, groups)


@pytest.mark.parametrize("order", [[0, 1, 1], [0, 1], [1, 2, 3]], ids=str)
def test_an_order_that_is_no_permutation_is_refused(order: list[int]) -> None:
    with pytest.raises(SpecError, match="not a permutation of 0 to 2"):
        group_index(3, 2, torch.tensor(order))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_broadcast_runs_along_the_axis(axis: int) -> None:
    x = torch.zeros(2, 3, 4)
    values = torch.arange(float(x.shape[axis]))
    assert torch.equal(by_channel(x + broadcast(values, 3, axis), axis)[:, 0], values)


def test_broadcast_of_one_channel_has_no_dimensions() -> None:
    assert broadcast(torch.ones(1), 3, None).shape == ()
