from __future__ import annotations

import pytest
import torch

from octavo.numerics.token_extremes import quantile_of_rows, token_extremes


def test_extremes_of_tokens_by_hand() -> None:
    x = torch.tensor([[1.0, -2.0, 3.0], [0.0, 7.0, -9.0]])
    low, high = token_extremes(x, torch.zeros(1, dtype=torch.int64), 1)
    assert (low.tolist(), high.tolist()) == ([[-2], [-9]], [[3], [7]])
    low, high = token_extremes(x, torch.tensor([1, 0, 1]), 2)
    assert (low.tolist(), high.tolist()) == ([[-2, 1], [7, -9]], [[-2, 3], [7, 0]])


@pytest.mark.parametrize("share", [0.001, 0.07, 0.29, 0.5, 0.57, 0.999, 1.0])
def test_the_quantile_is_the_least_entry_that_holds_the_share(share: float) -> None:
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    found = quantile_of_rows(x, share)
    for column, value in zip(x.T, found, strict=True):
        enough = [
            entry for entry in column.tolist() if round(float((column <= entry).sum()) - share * 100, 9) >= 0
        ]
        assert float(value) == min(enough)
