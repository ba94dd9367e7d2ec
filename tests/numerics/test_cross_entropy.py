from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax

from octavo.errors import CalibrationError
from octavo.numerics.cross_entropy import cross_entropy_range


def cross_entropy(rows: torch.Tensor, low: float, high: float, bits: int, symmetric: bool) -> float:
    """The mean cross-entropy of the rows on the grid over [low, high], in float64 numpy."""
    x = rows.double().numpy()
    top = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1
    scale = max(-low, high) / top if symmetric else (high - low) / top
    shift = 0 if symmetric else np.round(-low / scale)
    bottom = -top - 1 if symmetric else 0
    quantized = scale * (np.clip(np.round(x / scale) + shift, bottom, top) - shift)
    return float(-(softmax(x, axis=1) * log_softmax(quantized, axis=1)).sum(axis=1).mean())


def logits() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(300, 3, generator=generator) * 2 + torch.tensor([0.5, -0.3, 0.0])
    rows[0] = torch.tensor([-60.0, -50.0, 1.0])  # far below the others: clipping it costs nothing
    return rows


@pytest.mark.parametrize("bits", [3, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_close_to_exhaustive_search_and_better_than_the_full_range(bits: int, symmetric: bool) -> None:
    rows = logits()
    found = cross_entropy_range(rows, rows.min(), rows.max(), bits, symmetric)
    ours = cross_entropy(rows, found[0].item(), found[1].item(), bits, symmetric)
    lows, highs = torch.linspace(-60, -1, 60).tolist(), torch.linspace(1, rows.max().item(), 20).tolist()
    pairs = [(low, -low) for low in lows] if symmetric else list(product(lows, highs))
    floor = float(-(softmax(rows.double().numpy(), 1) * log_softmax(rows.double().numpy(), 1)).sum(1).mean())
    best = min(cross_entropy(rows, low, high, bits, symmetric) for low, high in pairs)
    assert ours - floor <= 1.25 * (best - floor)
    assert ours < cross_entropy(rows, rows.min().item(), rows.max().item(), bits, symmetric)


def test_logits_that_fit_the_grid_keep_the_full_range() -> None:
    rows = torch.arange(16.0).view(4, 4)
    minimum, maximum = cross_entropy_range(rows, rows.min(), rows.max(), 4, False)
    assert (minimum.item(), maximum.item()) == (0, 15)


def test_positive_logits_need_no_shift() -> None:
    rows = torch.rand(50, 4, generator=torch.Generator().manual_seed(0)) * 5
    minimum, maximum = cross_entropy_range(rows, rows.min(), rows.max(), 4, False)
    assert minimum.item() == 0 < maximum.item() <= 5


def test_a_single_class_is_refused() -> None:
    rows = torch.randn(5, 1)
    with pytest.raises(CalibrationError, match=r"rows of one class.*use mse"):
        cross_entropy_range(rows, rows.min(), rows.max(), 8, False)


@pytest.mark.parametrize("symmetric", [True, False])
def test_rows_that_the_first_pass_leaves_out_still_count(symmetric: bool) -> None:
    # 12,000 logits: the first pass reads every second row, and these are all small.
    rows = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0)) * 0.1
    rows[1::2] *= 100
    found = cross_entropy_range(rows, rows.min(), rows.max(), 8, symmetric)
    ours = cross_entropy(rows, found[0].item(), found[1].item(), 8, symmetric)
    full = cross_entropy(rows, rows.min().item(), rows.max().item(), 8, symmetric)
    assert ours <= full * (1 + 1e-6)
