from __future__ import annotations

import math
import pickle

import torch

from octavo.numerics import by_channel, count_groups, min_max
from octavo.numerics.min_max import NotFiniteError, widen


def test_min_max_of_groups_by_hand() -> None:
    x = torch.tensor([[1.0, 2.0], [-3.0, 0.0], [5.0, 4.0]])
    minimum, maximum = min_max(x, torch.tensor([1, 0, 1]), 2)
    assert (minimum.tolist(), maximum.tolist()) == ([-3.0, 1.0], [0.0, 5.0])


def test_min_max_of_a_transposed_half_precision_view() -> None:
    x = torch.randn(5, 7, 3).half()
    minimum, maximum = min_max(by_channel(x, -1), torch.arange(3), 3)
    assert torch.equal(minimum, x.float().amin((0, 1))) and torch.equal(maximum, x.float().amax((0, 1)))
    assert minimum.dtype == torch.float32


def test_nan_reaches_the_range_of_its_group_only() -> None:
    x = torch.tensor([[1.0, math.nan], [2.0, 3.0]])
    minimum, maximum = min_max(x, torch.tensor([0, 1]), 2)
    assert minimum.isnan().tolist() == maximum.isnan().tolist() == [True, False]


def test_the_error_reaches_other_processes() -> None:
    error = NotFiniteError()
    assert str(pickle.loads(pickle.dumps(error))) == str(error) and "holds NaN or infinity" in str(error)


def test_count_groups() -> None:
    assert count_groups(torch.tensor([0, 2, 1, 2])) == 3


def test_widen() -> None:
    first, second = (torch.tensor([0.0]), torch.tensor([1.0])), (torch.tensor([-1.0]), torch.tensor([0.5]))
    assert [end.item() for end in widen(first, second)] == [-1.0, 1.0]
    assert widen(None, second) == second
