"""Fake quantization whose range is learned: straight-through rounding, closed-form gradients.

The range is given by a log-scale l, so that scale = exp(l) is positive whatever is learned, and by a shift t, the
zero-point as a share of the grid: z = clip(round(t (high - low)), low, high). Both then move by comparable amounts
under one learning rate. With v = x / scale, q = clip(round(v), low - z, high - z) and y = scale q, the gradients of y
are (LSQ, LSQ+; section 4 of the paper)

    inside the grid    dy/dx = 1    dy/dl = scale (q - v)    dy/dt = 0
    clipped            dy/dx = 0    dy/dl = scale q          dy/dt = -scale (high - low)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Gradients = tuple[Tensor, Tensor | None, Tensor | None]


def learned_fake_quantize(
    x: Tensor, log_scale: Tensor, shift: Tensor | None, low: int, high: int, gradient_scale: float = 1.0
) -> Tensor:
    """Return eq. 2 of eq. 1, differentiable in `x`, `log_scale` and `shift` (None: the zero-point is 0).

    `log_scale` and `shift` have one element or broadcast against `x`. `gradient_scale` multiplies their gradients.
    """
    if log_scale.numel() == 1 and x.is_cuda and x.dtype == torch.float32 and not torch.compiler.is_compiling():
        from octavo.numerics.learned_cuda import FusedLearnedFakeQuantize

        result: Tensor = FusedLearnedFakeQuantize.apply(x, log_scale, shift, low, high, gradient_scale)  # type: ignore[no-untyped-call]
        return result
    result = _LearnedFakeQuantize.apply(x, log_scale, shift, low, high, gradient_scale)  # type: ignore[no-untyped-call]
    return result


def zero_point_of(shift: Tensor | None, low: int, high: int) -> Tensor | int:
    """Return the whole zero-point that a shift stands for."""
    return 0 if shift is None else (shift * (high - low)).round().clamp(low, high)


class _LearnedFakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, log_scale: Tensor, shift: Tensor | None, low: int, high: int, gradient_scale: float
    ) -> Tensor:
        scale = _operand(log_scale).exp()
        z = zero_point_of(None if shift is None else _operand(shift), low, high)
        ctx.save_for_backward(x, scale, z if isinstance(z, Tensor) else None)
        ctx.bounds, ctx.gradient_scale = (low, high), gradient_scale
        ctx.shapes = log_scale.shape, None if shift is None else shift.shape
        return _clipped((x / scale).round_(), z, low, high).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = grads
        x, scale, z = ctx.saved_tensors
        (low, high), (scale_shape, shift_shape) = ctx.bounds, ctx.shapes
        v = x / scale
        q = _clipped(v.round(), 0 if z is None else z, low, high)
        error = q - v
        inside = error.abs() <= 0.5  # clipping moves a value by more than rounding can
        passed = torch.where(inside, grad, 0)
        grad_scale = grad_shift = None
        if ctx.needs_input_grad[1]:
            slope = torch.where(inside, error, q).mul_(grad)
            grad_scale = (_sum_to(slope, scale) * scale * ctx.gradient_scale).reshape(scale_shape)
        if shift_shape is not None and ctx.needs_input_grad[2]:
            clipped = _sum_to(passed - grad, scale)
            grad_shift = (clipped * scale * ((high - low) * ctx.gradient_scale)).reshape(shift_shape)
        return passed, grad_scale, grad_shift, None, None, None


def _clipped(v: Tensor, z: Tensor | int, low: int, high: int) -> Tensor:
    # Two one-sided clamps: with tensor bounds torch vectorises them on the CPU, and not a two-sided one.
    return v.clamp_(low, high) if isinstance(z, int) else v.clamp_min_(low - z).clamp_max_(high - z)


def _operand(parameter: Tensor) -> Tensor:
    return parameter.reshape(()) if parameter.numel() == 1 else parameter


def _sum_to(values: Tensor, like: Tensor) -> Tensor:
    return values.sum_to_size(like.shape) if like.dim() else values.sum()
