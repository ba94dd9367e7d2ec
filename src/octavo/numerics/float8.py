"""Floating-point numbers of 8 bits, times a scale: E4M3 (up to 448) and E5M2 (up to 57344).

    code  = nearest number of the format to clip(x / scale, -largest, largest), ties to even
    x_hat = scale * code

The formats are torch's `float8_e4m3fn` and `float8_e5m2`: subnormals are there, infinities are not reached,
since values saturate. A grid is an `Affine` without a zero-point whose ends are those of the format.
"""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.numerics.affine import SMALLEST_SCALE, Affine


def largest(dtype: torch.dtype) -> int:
    """Return the largest finite number of a format."""
    return int(torch.finfo(dtype).max)


def float8_from_range(minimum: Tensor, maximum: Tensor, dtype: torch.dtype) -> Affine:
    """Return the grid on which the largest magnitude of a range is the largest number of the format.

    `minimum` and `maximum` have any one shape, an entry per group. An empty range (0, 0) gets the scale 1.
    """
    reach = torch.maximum(-minimum.double(), maximum.double()).clamp(min=0)
    scale = (reach / largest(dtype)).clamp(min=SMALLEST_SCALE)
    scale = torch.where(reach > 0, scale, torch.ones_like(scale)).float()
    zero_point = torch.zeros_like(scale, dtype=torch.int32)
    return Affine(scale=scale, zero_point=zero_point, low=-largest(dtype), high=largest(dtype))


def fake_float8(x: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what is left of `x`, in its dtype, with numbers of a format; `scale` broadcasts against it."""
    scale = scale.to(device=x.device, dtype=torch.float32)
    return _nearest(x.float() / scale, dtype).mul_(scale).to(x.dtype)


def float8_codes(x: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the byte of every element, int32 from 0 to 255."""
    v = (x.float() / scale.to(x.device)).clamp_(-largest(dtype), largest(dtype))
    return v.to(dtype).view(torch.uint8).to(torch.int32)


def float8_values(codes: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the real numbers, float32, that bytes stand for."""
    return codes.to(torch.uint8).view(dtype).float().mul_(scale.to(codes.device))


def learned_float8(x: Tensor, log_scale: Tensor, dtype: torch.dtype, gradient_scale: float = 1.0) -> Tensor:
    """Return `fake_float8`, differentiable in `x` and the logarithm of the scale, straight through rounding.

    Inside the format dy/dx = 1 and dy/dl = y - x; where values saturate dy/dx = 0 and dy/dl = y.
    """
    if gradient_scale != 1.0:
        log_scale = log_scale * gradient_scale + (log_scale * (1 - gradient_scale)).detach()
    return straight_through_float8(x, log_scale.exp(), dtype)


def straight_through_float8(x: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return `fake_float8`, bit for bit; dy/dx is 1 inside the format and 0 where values saturate."""
    v = (x.float() / scale).clamp(-largest(dtype), largest(dtype))
    # subtracted and added again a number changes in its last bits: only the gradient takes that way
    rounded = _nearest(v.detach(), dtype)
    passed = v - v.detach()
    return ((rounded + passed) * scale).to(x.dtype)


def _nearest(v: Tensor, dtype: torch.dtype) -> Tensor:
    return v.clamp(-largest(dtype), largest(dtype)).to(dtype).float()
