from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from octavo.numerics.reservoir import RandomRows, RowReservoir


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


def test_random_rows_do_not_depend_on_how_the_stream_is_cut() -> None:
    stream = torch.arange(200.0).reshape(100, 2)
    whole, cut = RandomRows(10, seed=3), RandomRows(10, seed=3)
    whole.add(stream)
    for part in stream.split(7):
        cut.add(part)
    kept = cut.rows()
    assert kept is not None and len(kept) == 10 and torch.equal(kept, torch.as_tensor(whole.rows()))


def test_every_row_is_kept_equally_often() -> None:
    counts = torch.zeros(20)
    for seed in range(400):
        sample = RandomRows(5, seed)
        sample.add(torch.arange(20.0).reshape(20, 1))
        kept = sample.rows()
        assert kept is not None
        counts[kept[:, 0].long()] += 1
    assert float(counts.min()) > 60 and float(counts.max()) < 140  # 100 each; 4.6 standard deviations


def test_a_sample_of_nothing_is_none() -> None:
    assert RandomRows(5, 0).rows() is None
