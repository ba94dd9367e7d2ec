"""Fake quantization whose scale and zero-point are learned: straight-through rounding, closed-form gradients.

With v = x / scale, q = clip(round(v), low - z, high - z) and y = scale * q, the gradients of y are (LSQ, LSQ+; section 4 of the paper)

    inside the grid    dy/dx = 1    dy/dscale = q - v    dy/dz = 0
    clipped            dy/dx = 0    dy/dscale = q        dy/dz = -scale
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def learned_fake_quantize(x: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int) -> Tensor:
    """Return eq. 2 of eq. 1, differentiable in `x`, `scale` and `zero_point` (a real number, rounded here).

    `scale` and `zero_point` broadcast against `x`.
    """
    result: Tensor = _LearnedFakeQuantize.apply(x, scale, zero_point, low, high)  # type: ignore[no-untyped-call]
    return result


class _LearnedFakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int) -> Tensor:
        z = zero_point.round().clamp(low, high)
        v = x / scale
        q = v.round().clamp_min_(low - z).clamp_max_(high - z)
        ctx.save_for_backward(v, q, scale, zero_point)
        return q * scale

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        (grad,) = grads
        v, q, scale, zero_point = ctx.saved_tensors
        error = q - v
        inside = error.abs() <= 0.5  # clipping moves a value by more than rounding can
        grad_x = torch.where(inside, grad, 0)
        grad_scale = _sum_to(grad * torch.where(inside, error, q), scale) if ctx.needs_input_grad[1] else None
        outside = (grad_x - grad) * scale if ctx.needs_input_grad[2] else None
        grad_zero = _sum_to(outside, zero_point) if outside is not None else None
        return grad_x, grad_scale, grad_zero, None, None


def _sum_to(values: Tensor, like: Tensor) -> Tensor:
    return values.sum_to_size(like.shape) if like.dim() else values.sum()
