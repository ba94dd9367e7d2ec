"""Fake quantization on a fixed grid that lets gradients pass where nothing is clipped."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from octavo.numerics.affine import fake_quantize


def straight_through(x: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int) -> Tensor:
    """Return eq. 2 of eq. 1, bit-equal to `fake_quantize`; dy/dx is 1 on the grid and 0 where x is clipped.

    `scale` and `zero_point` have one element or broadcast against `x`.
    """
    result: Tensor = _StraightThrough.apply(x, scale, zero_point, low, high)  # type: ignore[no-untyped-call]
    return result


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int) -> Tensor:
        rounded = (x / scale).round_()
        ctx.save_for_backward((rounded >= low - zero_point) & (rounded <= high - zero_point))
        return fake_quantize(x, scale, zero_point, low, high)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        (inside,) = ctx.saved_tensors
        return grads[0] * inside, None, None, None, None
