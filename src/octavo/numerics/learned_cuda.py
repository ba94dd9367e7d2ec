"""`learned_compact` on a GPU: one kernel forward, two backward.

Written out, a step of quantization-aware training launches some twenty small kernels at every site and
spends its time on that. Sums go by blocks in a fixed order: runs repeat to the bit.
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


@triton.jit  # type: ignore[untyped-decorator]
def _grid(log_scale, shift, low, high, HAS_SHIFT: tl.constexpr):  # type: ignore[no-untyped-def]
    scale = tl.exp(tl.load(log_scale))
    z = scale * 0.0
    if HAS_SHIFT:
        z = _round(tl.minimum(tl.maximum(tl.load(shift) * (high - low), low), high))
    return scale, low - z, high - z


@triton.jit  # type: ignore[untyped-decorator]
def _forward(x, y, codes, log_scale, shift, low, high, count, HAS_SHIFT: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    scale, bottom, top = _grid(log_scale, shift, low, high, HAS_SHIFT)
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.div_rn(tl.load(x + at, mask=at < count, other=0.0), scale)
    q = _round(tl.minimum(tl.maximum(v, bottom), top))  # whole bounds: clipping first is the same
    tl.store(y + at, q * scale, mask=at < count)
    c = tl.minimum(tl.maximum(_round(tl.minimum(tl.maximum((v - q) * 253.0, -200.0), 200.0)), -128.0), 127.0)
    tl.store(codes + at, c.to(tl.int8), mask=at < count)


@triton.jit  # type: ignore[untyped-decorator]
def _backward(  # type: ignore[no-untyped-def]
    grad,
    codes,
    passed,
    sums,
    log_scale,
    shift,
    low,
    high,
    factor,
    count,
    HAS_SHIFT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    scale, bottom, top = _grid(log_scale, shift, low, high, HAS_SHIFT)
    block = tl.program_id(0)
    at = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(grad + at, mask=at < count, other=0.0)
    c = tl.load(codes + at, mask=at < count, other=0).to(tl.float32)
    inside = tl.abs(c) < 126.5
    tl.store(passed + at, tl.where(inside, g, 0.0), mask=at < count)
    slope = tl.where(inside, c * (-1.0 / 253.0), tl.where(c > 0, top, bottom))
    tl.store(sums + 2 * block, tl.sum(g * slope) * scale * factor)
    tl.store(sums + 2 * block + 1, tl.sum(tl.where(inside, 0.0, -g)) * scale * factor * (high - low))


class Fused(torch.autograd.Function):
    """`learned_fake_quantize` of a float32 CUDA tensor with one log-scale and at most one shift."""

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
        """Quantize; the codes are kept for the gradients."""
        x = x.contiguous()
        y, codes = torch.empty_like(x), torch.empty_like(x, dtype=torch.int8)
        ctx.save_for_backward(codes, log_scale, shift)
        ctx.bounds, ctx.factor = (float(low), float(high)), float(gradient_scale)
        _forward[(triton.cdiv(x.numel(), _BLOCK),)](
            *(x, y, codes, log_scale, log_scale if shift is None else shift, *ctx.bounds, x.numel()),
            HAS_SHIFT=shift is not None,
            BLOCK=_BLOCK,
            num_warps=8,
        )
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of `x`, `log_scale` and `shift`."""
        codes, log_scale, shift = ctx.saved_tensors
        grad = grads[0].contiguous()
        passed = torch.empty_like(grad)
        blocks = triton.cdiv(grad.numel(), _BLOCK)
        sums = torch.empty((blocks, 2), device=grad.device)
        _backward[(blocks,)](
            *(grad, codes, passed, sums, log_scale, log_scale if shift is None else shift, *ctx.bounds),
            *(ctx.factor, grad.numel()),
            HAS_SHIFT=shift is not None,
            BLOCK=_BLOCK,
            num_warps=8,
        )
        totals = sums.sum(0)
        grad_shift = None if shift is None else totals[1].reshape(shift.shape)
        return passed, totals[0].reshape(log_scale.shape), grad_shift, None, None, None
