from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo.numerics.reservoir import RowReservoir


def filled(rows: torch.Tensor, cuts: list[int], capacity: int) -> RowReservoir:
    reservoir = RowReservoir(capacity)
    for piece in torch.tensor_split(rows, sorted(cuts)):
        reservoir.add(piece)
    return reservoir


def test_keeps_everything_that_fits() -> None:
    rows = torch.arange(12.0).view(6, 2)
    assert torch.equal(filled(rows, [1, 4], 12).rows(), rows)


def test_keeps_every_other_row_when_full() -> None:
    rows = torch.arange(14.0).view(7, 2)
    assert filled(rows, [3], 12).rows()[:, 0].tolist() == [0, 4, 8, 12]


def test_always_keeps_the_first_row() -> None:
    assert filled(torch.arange(20.0).view(2, 10), [], 3).rows()[:, 0].tolist() == [0]


@given(st.integers(1, 200), st.lists(st.integers(0, 200), max_size=6), st.integers(2, 40))
def test_bounded_evenly_spaced_and_independent_of_cutting(count: int, cuts: list[int], capacity: int) -> None:
    rows = torch.arange(float(count)).unsqueeze(1)
    kept = filled(rows, [min(cut, count) for cut in cuts], capacity).rows()
    assert torch.equal(kept, filled(rows, [], capacity).rows())
    assert kept.numel() <= capacity
    assert len(kept) >= min(count, capacity // 2)
    assert kept.flatten().diff().unique().numel() <= 1
