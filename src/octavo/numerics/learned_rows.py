"""Learned fake quantization of a weight with a range for every row, in blocks of rows that stay in the cache.

As `learned_compact`: one byte an element remembers the rounding error and whether a value was clipped, and
the gradients of each row's log-scale and shift follow from four sums over it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from octavo.numerics.learned_compact import BLOCK, CLIPPED, STEPS


def has_rows(x: Tensor, log_scale: Tensor) -> bool:
    """Return whether a matrix has one log-scale for each of its rows, (rows, 1)."""
    return x.dim() == 2 and x.shape[1] > 1 and log_scale.shape == (x.shape[0], 1)


class CompactRows(torch.autograd.Function):
    """`learned_fake_quantize` of a float32 matrix on the CPU with a log-scale, and at most a shift, a row."""

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
        scale = log_scale.detach().exp()
        z = torch.zeros_like(scale)
        if shift is not None:
            z = (shift.detach() * (high - low)).round().clamp(low, high)
        bottom, top = low - z, high - z
        x = x.contiguous()
        y, codes = torch.empty_like(x), torch.empty_like(x, dtype=torch.int8)
        for a, b, c, s, least, most in zip(
            *(_rows(part, x) for part in (x, y, codes, scale, bottom, top)), strict=True
        ):
            v = a / s
            torch.maximum(v, least, out=b)
            torch.minimum(b, most, out=b)  # whole bounds: clipping before rounding is the same
            b.round_()
            c.copy_(v.sub_(b).mul_(STEPS).round_().clamp_(-128, 127))
            b.mul_(s)
        ctx.save_for_backward(codes, scale, bottom, top)
        ctx.factor, ctx.has_shift = gradient_scale, shift is not None
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of `x`, `log_scale` and `shift`."""
        codes, scale, bottom, top = ctx.saved_tensors
        grad = grads[0].contiguous()
        passed = torch.empty_like(grad)
        parts = []
        for g, p, c in zip(*(_rows(part, grad) for part in (grad, passed, codes)), strict=True):
            f = c.float()
            torch.ops.aten.hardtanh_backward.grad_input(g, f, -CLIPPED, CLIPPED, grad_input=p)
            sums = g.sum(1), p.sum(1)
            parts.append(torch.stack([(g * f).sum(1), f.mul_(p).sum(1), *sums], 1))
        all_codes, inside_codes, everything, inside = torch.cat(parts).split(1, 1)
        code, clipped = all_codes - inside_codes, everything - inside
        above, below = (code + 128 * clipped) / 255, (127 * clipped - code) / 255
        slope = (top * above + bottom * below - inside_codes / STEPS) * scale * ctx.factor
        pull = (bottom - top) * clipped * scale * ctx.factor if ctx.has_shift else None
        return passed, slope, pull, None, None, None


def _rows(part: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """Cut a tensor into as many rows as fill a block of the whole."""
    parts: tuple[Tensor, ...] = part.split(max(1, BLOCK // x.shape[1]))
    return parts
