"""The learned fake quantization of `learned` for one range per tensor on a GPU: one kernel forward, two backward.

Written out, a step of quantization-aware training launches some twenty small kernels at every site and spends its time
on that. The sums behind the gradients of the range go by blocks in a fixed order: runs repeat to the bit.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 4096


# 1.5 * 2^23: adding it leaves no room for a fraction, which rounds half to even; exact below 2^22 in size
_NO_FRACTION = tl.constexpr(12582912.0)


@triton.jit
def _round(v):  # type: ignore[no-untyped-def]
    return (v + _NO_FRACTION) - _NO_FRACTION


@triton.jit
def _grid(log_scale, shift, low, high, HAS_SHIFT: tl.constexpr):  # type: ignore[no-untyped-def]
    scale = tl.exp(tl.load(log_scale))
    z = scale * 0.0
    if HAS_SHIFT:
        z = _round(tl.minimum(tl.maximum(tl.load(shift) * (high - low), low), high))
    return scale, low - z, high - z


@triton.jit
def _forward(x, y, log_scale, shift, low, high, count, HAS_SHIFT: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    scale, bottom, top = _grid(log_scale, shift, low, high, HAS_SHIFT)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.div_rn(tl.load(x + at, mask=at < count, other=0.0), scale)
    q = _round(tl.minimum(tl.maximum(v, bottom), top))  # whole bounds: clipping first is the same
    tl.store(y + at, q * scale, mask=at < count)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    x, grad, passed, sums, log_scale, shift, low, high, factor, count, HAS_SHIFT: tl.constexpr, BLOCK: tl.constexpr
):
    scale, bottom, top = _grid(log_scale, shift, low, high, HAS_SHIFT)
    block = tl.program_id(0)
    at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.div_rn(tl.load(x + at, mask=at < count, other=0.0), scale)
    g = tl.load(grad + at, mask=at < count, other=0.0)
    q = _round(tl.minimum(tl.maximum(v, bottom), top))  # whole bounds: clipping first is the same
    error = q - v
    inside = tl.abs(error) <= 0.5
    tl.store(passed + at, tl.where(inside, g, 0.0), mask=at < count)
    tl.store(sums + 2 * block, tl.sum(g * tl.where(inside, error, q)) * scale * factor)
    tl.store(sums + 2 * block + 1, tl.sum(tl.where(inside, 0.0, -g)) * scale * factor * (high - low))


class FusedLearnedFakeQuantize(torch.autograd.Function):
    """`learned_fake_quantize` of a float32 CUDA tensor with one log-scale and one shift."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, log_scale: Tensor, shift: Tensor | None, low: int, high: int, gradient_scale: float
    ) -> Tensor:
        x = x.contiguous()
        y = torch.empty_like(x)
        ctx.save_for_backward(x, log_scale, shift)
        ctx.bounds, ctx.gradient_scale = (float(low), float(high)), float(gradient_scale)
        blocks = triton.cdiv(x.numel(), _BLOCK)
        _forward[(blocks,)](
            x, y, log_scale, log_scale if shift is None else shift, *ctx.bounds, x.numel(),
            HAS_SHIFT=shift is not None, BLOCK=_BLOCK, num_warps=8,
        )  # fmt: skip
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, log_scale, shift = ctx.saved_tensors
        grad = grads[0].contiguous()
        passed = torch.empty_like(x)
        blocks = triton.cdiv(x.numel(), _BLOCK)
        sums = torch.empty((blocks, 2), device=x.device, dtype=torch.float32)
        _backward[(blocks,)](
            x, grad, passed, sums, log_scale, log_scale if shift is None else shift, *ctx.bounds,
            ctx.gradient_scale, x.numel(), HAS_SHIFT=shift is not None, BLOCK=_BLOCK, num_warps=8,
        )  # fmt: skip
        totals = sums.sum(0)
        grad_scale = totals[0].reshape(log_scale.shape) if ctx.needs_input_grad[1] else None
        grad_shift = totals[1].reshape(shift.shape) if shift is not None and ctx.needs_input_grad[2] else None
        return passed, grad_scale, grad_shift, None, None, None
