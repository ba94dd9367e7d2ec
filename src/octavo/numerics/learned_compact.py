"""Learned fake quantization of one range per tensor that remembers one byte for each element.

The gradients of `learned` need only the rounding error e = v - q of each element and whether it was
clipped. Both fit in c = clip(round(253 e), -128, 127): -128 and 127 say clipped below and above, the rest
is the error to 1/506 of a step, far below what a sum over a tensor can tell. With g the gradient of y, p
that of x (g where nothing was clipped), and H, L the sums of g over what was clipped above and below,

    dl = scale (-sum(p c) / 253 + top H + bottom L)        dt = -scale (high - low) (H + L)

where top = high - z and bottom = low - z, and H and L follow from sum(g c) - sum(p c) = 127 H - 128 L and
sum(g) - sum(p) = H + L.

On the CPU tensors pass in blocks that stay in the cache: the passes over memory, not the arithmetic, take
the time. Under torch.compile sums go by rows first, so that they fuse with what stands beside them: sums over
whole tensors take kernels of their own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BLOCK = 1 << 18
STEPS = 253.0  # 0.5 becomes 126.5, which rounds to 126: just inside, as it should be
CLIPPED = 126.5  # codes beyond it say that a value was clipped


class Compact(torch.autograd.Function):
    """`learned_fake_quantize` of a float32 tensor with one log-scale and at most one shift."""

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
        scale, bottom, top = grid(log_scale, shift, low, high)
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            y, codes = _blocks(x.contiguous(), float(scale), float(bottom), float(top))
        else:
            v = x / scale
            q = v.maximum(bottom).minimum(top).round()
            codes = ((v - q) * STEPS).round().clamp(-128, 127).to(torch.int8)
            y = q * scale
        ctx.save_for_backward(codes, scale, bottom, top)
        ctx.factor, ctx.shapes = gradient_scale, (log_scale.shape, shift is not None)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of `x`, `log_scale` and `shift`."""
        codes, scale, bottom, top = ctx.saved_tensors
        grad = grads[0]
        if grad.device.type == "cpu" and not torch.compiler.is_compiling():
            passed, slope, pull = _block_gradients(grad.contiguous(), codes, scale, bottom, top)
        else:
            passed, slope, pull = _row_gradients(grad, codes, scale, bottom, top)
        shape, has_shift = ctx.shapes
        grad_shift = (pull * ctx.factor).reshape(shape) if has_shift else None
        return passed, (slope * ctx.factor).reshape(shape), grad_shift, None, None, None


def grid(log_scale: Tensor, shift: Tensor | None, low: int, high: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the scale and the whole bounds of v, 0-d each."""
    scale = log_scale.detach().reshape(()).exp()
    z = torch.zeros_like(scale)
    if shift is not None:
        z = (shift.detach().reshape(()) * (high - low)).round().clamp(low, high)
    return scale, low - z, high - z


def _blocks(x: Tensor, scale: float, bottom: float, top: float) -> tuple[Tensor, Tensor]:
    y, codes = torch.empty_like(x), torch.empty_like(x, dtype=torch.int8)
    scratch = torch.empty(min(BLOCK, x.numel()))
    for a, b, c in zip(*(tensor.view(-1).split(BLOCK) for tensor in (x, y, codes)), strict=True):
        v = scratch[: len(a)]
        torch.div(a, scale, out=v)
        torch.clamp(v, bottom, top, out=b)  # whole bounds: clipping before rounding is the same
        b.round_()
        v.sub_(b).mul_(STEPS).round_().clamp_(-128, 127)
        c.copy_(v)
        b.mul_(scale)
    return y, codes


def _block_gradients(
    grad: Tensor, codes: Tensor, scale: Tensor, bottom: Tensor, top: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    passed = torch.empty_like(grad)
    scratch = torch.empty(min(BLOCK, grad.numel()))
    parts = []
    for g, p, c in zip(*(tensor.view(-1).split(BLOCK) for tensor in (grad, passed, codes)), strict=True):
        f = scratch[: len(g)]
        f.copy_(c)
        # the gradient where |f| is inside the bound, else 0: one pass where a mask takes three
        torch.ops.aten.hardtanh_backward.grad_input(g, f, -CLIPPED, CLIPPED, grad_input=p)
        parts.append(torch.stack([torch.dot(g, f), torch.dot(p, f), g.sum(), p.sum()]))
    all_codes, inside_codes, everything, inside = torch.stack(parts).double().sum(0).unbind()
    code, clipped = all_codes - inside_codes, everything - inside
    above, below = (code + 128 * clipped) / 255, (127 * clipped - code) / 255
    slope = (top * above + bottom * below - inside_codes / STEPS) * scale
    return passed, slope.to(scale.dtype), ((bottom - top) * clipped * scale).to(scale.dtype)


def _row_gradients(
    grad: Tensor, codes: Tensor, scale: Tensor, bottom: Tensor, top: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    c = codes.float()
    inside = c.abs() < CLIPPED
    passed = torch.where(inside, grad, 0)
    slope = torch.where(inside, c / -STEPS, torch.where(c > 0, top, bottom))
    pull = (passed - grad).sum(-1).sum() * (top - bottom)
    return passed, (grad * slope).sum(-1).sum() * scale, pull * scale
