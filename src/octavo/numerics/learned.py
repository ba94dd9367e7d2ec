"""Fake quantization whose range is learned: straight-through rounding, closed-form gradients.

The range is given by a log-scale l, so that scale = exp(l) is positive whatever is learned, and by a shift
t, the zero-point as a share of the grid: z = clip(round(t (high - low)), low, high). Both then move by
comparable amounts under one learning rate. With v = x / scale, q = clip(round(v), low - z, high - z) and y
= scale q, the gradients of y are (LSQ, LSQ+; section 4 of the paper)

    inside the grid    dy/dx = 1    dy/dl = scale (q - v)    dy/dt = 0
    clipped            dy/dx = 0    dy/dl = scale q          dy/dt = -scale (high - low)

`Exact` is these formulas written out. One range per tensor in float32, the case of training, goes through
`learned_compact` instead, which is many times faster and remembers one byte an element.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from octavo.errors import MissingExtraError
from octavo.numerics.affine import fake_quantize


def learned_fake_quantize(
    x: Tensor, log_scale: Tensor, shift: Tensor | None, low: int, high: int, gradient_scale: float = 1.0
) -> Tensor:
    """Return eq. 2 of eq. 1, differentiable in `x`, `log_scale` and `shift` (None: the zero-point is 0).

    `log_scale` and `shift` have one element or broadcast against `x`; `gradient_scale` multiplies
    their gradients.
    """
    if not torch.is_grad_enabled():
        zero = torch.as_tensor(zero_point_of(shift, low, high), dtype=x.dtype)
        return fake_quantize(x, log_scale.exp(), zero, low, high)
    result: Tensor = _function(x, log_scale).apply(x, log_scale, shift, low, high, gradient_scale)
    return result


def zero_point_of(shift: Tensor | None, low: int, high: int) -> Tensor | int:
    """Return the whole zero-point that a shift stands for."""
    return 0 if shift is None else (shift * (high - low)).round().clamp(low, high)


def _function(x: Tensor, log_scale: Tensor) -> Any:
    if x.dtype != torch.float32:
        return Exact
    if log_scale.numel() != 1:
        from octavo.numerics.learned_rows import CompactRows, has_rows

        return CompactRows if x.device.type == "cpu" and has_rows(x, log_scale) else Exact
    if x.is_cuda and not torch.compiler.is_compiling():
        try:
            from octavo.numerics.learned_cuda import Fused
        except ImportError as error:
            raise MissingExtraError("gpu", "Learning ranges on a GPU") from error
        return Fused
    from octavo.numerics.learned_compact import Compact

    return Compact


class Exact(torch.autograd.Function):
    """The formulas as they stand: any dtype, any number of groups."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        log_scale: Tensor,
        shift: Tensor | None,
        low: int,
        high: int,
        gradient_scale: float,
    ) -> Tensor:
        """Quantize; `x` is kept for the gradients."""
        scale = log_scale.exp()
        z = zero_point_of(shift, low, high)
        ctx.save_for_backward(x, scale, z if isinstance(z, Tensor) else None)
        ctx.bounds, ctx.gradient_scale, ctx.has_shift = (low, high), gradient_scale, shift is not None
        return _clipped((x / scale).round_(), z, low, high).mul_(scale)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of `x`, `log_scale` and `shift`."""
        (grad,) = grads
        x, scale, z = ctx.saved_tensors
        low, high = ctx.bounds
        v = x / scale
        q = _clipped(v.round(), 0 if z is None else z, low, high)
        inside = (q - v).abs() <= 0.5  # clipping moves a value by more than rounding can
        passed = torch.where(inside, grad, 0)
        slope = (grad * q - passed * v) * scale * ctx.gradient_scale
        pull = (passed - grad) * scale * ((high - low) * ctx.gradient_scale)
        grad_shift = pull.sum_to_size(scale.shape) if ctx.has_shift else None
        return passed, slope.sum_to_size(scale.shape), grad_shift, None, None, None


def _clipped(v: Tensor, z: Tensor | int, low: int, high: int) -> Tensor:
    # Two one-sided clamps: with tensor bounds torch vectorises them on the CPU, and not a two-sided one.
    return v.clamp_(low, high) if isinstance(z, int) else v.clamp_min_(low - z).clamp_max_(high - z)
