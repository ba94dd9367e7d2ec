"""The range of logits of least cross-entropy between the float and the quantized prediction."""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.errors import CalibrationError
from octavo.numerics.affine import affine_from_range, fake_quantize
from octavo.numerics.min_max import Range

SHIFTS = 17  # zero-points of the first pass, for logits on both sides of 0
POINTS = 9  # scales, and zero-points, of a finer pass
PASSES = 3
SAMPLE = 2**12  # logits of the first pass, which tries every pair of a scale and a zero-point
WORKING_SET = 2**18  # float64 numbers per temporary


def cross_entropy_range(
    rows: Tensor,
    minimum: Tensor,
    maximum: Tensor,
    bits: int,
    symmetric: bool,
    candidates: int = 100,
    signed: bool | None = None,
) -> Range:
    """Return the range, 0-d each, that changes the softmax of `rows`, (rows, classes), least.

    `minimum` and `maximum` are the ends of the full range. `candidates` sizes of it, each with several shifts
    where the grid has one, are tried on some of the rows, then finer ones around the best, and the full one,
    on all of them; so min-max is never better. `signed` is that of `affine_from_range`.
    """
    if rows.shape[1] < 2:
        raise CalibrationError(
            "cross-entropy saw rows of one class, whose softmax is the same under every range; use mse."
        )
    full = affine_from_range(minimum, maximum, bits, symmetric, signed)
    widest, start = full.scale.double(), full.zero_point.double()
    steps = full.high if symmetric else full.high - full.low
    # From wide to narrow, so that a tie leaves the wider range.
    scales = _evenly(1, 1 / candidates, candidates, rows) * widest
    shifts = start.reshape(1)
    if not symmetric and bool((minimum < 0) & (maximum > 0)):
        shifts = torch.cat([shifts, _evenly(0, steps, SHIFTS, rows).round()])
    window, shift_window = widest / candidates, steps / (SHIFTS - 1) if len(shifts) > 1 else 0.0
    every = max(1, rows.numel() // SAMPLE)
    scale, shift = _best(rows[::every], torch.cartesian_prod(scales, shifts), full.low, full.high)
    whole = torch.stack([widest, start]).unsqueeze(0)
    for _ in range(PASSES):
        offsets = _evenly(1, -1, POINTS, rows)
        scales = (scale + offsets * window).clamp(min=scale / POINTS).minimum(widest)
        shifts = torch.unique((shift + offsets * shift_window).round().clamp(0, steps))
        # The full range stands first, so that it wins ties.
        pairs = torch.cat([whole, torch.cartesian_prod(scales, shifts)])
        scale, shift = _best(rows, pairs, full.low, full.high)
        window, shift_window = window * 2 / (POINTS - 1), shift_window * 2 / (POINTS - 1)
    low = -scale * (steps if symmetric and full.low < 0 else shift)
    return low.float(), (scale * (steps - shift)).float()


def _best(rows: Tensor, pairs: Tensor, low: int, high: int) -> tuple[Tensor, Tensor]:
    """Return the scale and the zero-point, 0-d each, of least cross-entropy among pairs (pairs, 2)."""
    size = max(1, WORKING_SET // rows.numel())
    parts = [_cross_entropy(rows.double(), part, low, high) for part in torch.split(pairs, size)]
    scale, shift = pairs[torch.cat(parts).argmin()]
    return scale, shift


def _cross_entropy(rows: Tensor, pairs: Tensor, low: int, high: int) -> Tensor:
    """Return the mean cross-entropy, (pairs,), of the rows on each of the grids (pairs, 2)."""
    scale, zero_point = pairs[:, 0, None, None], pairs[:, 1, None, None]
    # A grid alone has one element and would not add an axis.
    quantized = fake_quantize(rows.unsqueeze(0), scale, zero_point, low, high)
    return -(rows.softmax(dim=1) * quantized.log_softmax(dim=2)).sum(dim=2).mean(dim=1)


def _evenly(first: float, last: float, count: int, like: Tensor) -> Tensor:
    return torch.linspace(first, last, count, dtype=torch.float64, device=like.device)
