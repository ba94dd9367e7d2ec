"""Affine quantization: the paper's equations 1 and 2, and the grid that covers a range.

    eq. 1   q     = clip(round(x / scale) + zero_point, low, high)
    eq. 2   x_hat = scale * (q - zero_point)

Rounding is half to even and `x` is *divided* by the scale, both as in ONNX `QuantizeLinear`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.errors import SpecError

# Below this a scale would be denormal, and hardware that flushes denormals would divide by zero.
SMALLEST_SCALE = torch.finfo(torch.float32).tiny


@dataclass(frozen=True, kw_only=True, eq=False)
class Affine:
    """A grid: `scale` (float32) and `zero_point` (int32), an entry per group, and its integer bounds."""

    scale: Tensor
    zero_point: Tensor
    low: int
    high: int


def check_bits(bits: int) -> None:
    """Refuse a bit-width outside 2 to 16."""
    if not 2 <= bits <= 16:
        raise SpecError(f"{bits} bits were asked for; use 2 to 16.")


def integer_bounds(bits: int, symmetric: bool, signed: bool) -> tuple[int, int]:
    """Return the ends of the grid: two's complement if it is symmetric and signed, else 0 and 2^b - 1."""
    check_bits(bits)
    if symmetric and signed:
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return 0, 2**bits - 1


def affine_from_range(
    minimum: Tensor, maximum: Tensor, bits: int, symmetric: bool, signed: bool | None = None
) -> Affine:
    """Return the grid over `[minimum, maximum]` widened to contain 0, which is always exactly representable.

    `minimum` and `maximum` have any one shape, an entry per group; `scale` and `zero_point` have it too.
    Asymmetric: scale = (max - min) / (2^b - 1), zero_point = round(-min / scale).
    Symmetric: zero_point = 0 and scale = absmax / (2^(b-1) - 1), or max / (2^b - 1) where no minimum is
    negative. `signed` settles that choice beforehand; `None` looks at the data (and so waits for a GPU).
    An empty range (0, 0) gets the scale 1.
    """
    # float64: the width of a range of large float32 numbers overflows float32.
    minimum, maximum = minimum.double().clamp(max=0), maximum.double().clamp(min=0)
    if signed is None:
        signed = bool((minimum < 0).any()) if symmetric else False
    low, high = integer_bounds(bits, symmetric, signed)
    reach = torch.maximum(-minimum, maximum) if symmetric else maximum - minimum
    steps = high if symmetric else high - low
    scale = (reach / steps).clamp(min=SMALLEST_SCALE)
    scale = torch.where(reach > 0, scale, torch.ones_like(scale)).float()
    zero_point = torch.zeros_like(scale) if symmetric else (-minimum / scale).round().clamp(low, high)
    return Affine(scale=scale, zero_point=zero_point.int(), low=low, high=high)


def with_half_scales(affine: Affine) -> Affine:
    """Return a grid whose scales are numbers of half precision, which two bytes hold without loss.

    A scale moves by at most 1 / 2048 of itself; a grid with scales outside half's normal range stays.
    """
    normal = torch.finfo(torch.float16)
    if not bool(((affine.scale >= normal.tiny) & (affine.scale <= normal.max)).all()):
        return affine
    scale = affine.scale.half().float()
    return Affine(scale=scale, zero_point=affine.zero_point, low=affine.low, high=affine.high)


def fits_half(scale: Tensor) -> bool:
    """Say whether half precision holds all of several scales exactly."""
    return scale.numel() > 1 and bool((scale.half().float() == scale).all())


def quantize(x: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int) -> Tensor:
    """Return the integers of eq. 1 as floats of `x`'s dtype.

    For half precision, which cannot hold integers of 16 bits, they are float32.
    `scale` and `zero_point` have one element or broadcast against `x`.
    """
    scale, zero_point = _operand(scale, x), _operand(zero_point, x)
    return (_wide(x) / scale).round_().add_(zero_point).clamp_(low, high)


def dequantize(q: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Return the real numbers of eq. 2 that the integers `q`, of an integer or float dtype, stand for."""
    q = _wide(q if q.is_floating_point() else q.float())
    return (q - _operand(zero_point, q)).mul_(_operand(scale, q))


def fake_quantize(
    x: Tensor, scale: Tensor, zero_point: Tensor, low: int, high: int, inplace: bool = False
) -> Tensor:
    """Return eq. 2 of eq. 1 in `x`'s dtype: `dequantize(quantize(x))`, but faster, as nothing is shifted.

    `scale` and `zero_point` have one element or broadcast against `x`. `inplace` overwrites `x`.
    """
    scale, zero_point = _operand(scale, x), _operand(zero_point, x)
    wide = _wide(x)
    y = wide.div_(scale) if inplace else wide / scale
    # Two one-sided clamps: with tensor bounds torch vectorises them on the CPU, and not a two-sided one.
    y = y.round_().clamp_min_(low - zero_point).clamp_max_(high - zero_point).mul_(scale)
    if y.dtype == x.dtype:
        return y
    return x.copy_(y) if inplace else y.to(x.dtype)


def _wide(x: Tensor) -> Tensor:
    """Return `x` in the dtype it is computed in: float64 stays, everything narrower is float32."""
    return x if x.dtype == torch.float64 else x.float()


def _operand(parameter: Tensor, x: Tensor) -> Tensor:
    """Return a scale or zero-point in the dtype `x` is computed in, on its device, 0-d if it has one element.

    On the same device because CUDA divides by a CPU scalar through its inverse, which is off by one bit.
    """
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    parameter = parameter.to(device=x.device, dtype=dtype)
    return parameter.reshape(()) if parameter.numel() == 1 else parameter
