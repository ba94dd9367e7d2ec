"""GELU, softmax and LayerNorm in integer arithmetic: I-BERT's polynomials, shifts and integer square root.

A tensor is a pair (q, scale) that stands for `scale * q`, q int64. Only additions, multiplications, shifts,
comparisons and integer divisions touch q; scales are known before any data, so every constant below is an
integer once they are.

Differences from I-BERT, which works in 32 bits: the polynomials get grids of at least 2^-10, by a shift to
the left, so that 8-bit inputs lose nothing; shifts to the right are chosen from the scale instead of fixed
at 14; the mean of LayerNorm is not rounded. Products stay below 2^62.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# erf(x) ~ sign(x) * (a * (min(|x|, -b) + b)^2 + 1), I-BERT eq. 8
_ERF_A, _ERF_B = -0.2888, -1.769
# exp(p) ~ a * (p + b)^2 + c on (-ln 2, 0], I-BERT eq. 13
_EXP_A, _EXP_B, _EXP_C = 0.3585, 1.353, 0.344
_FINEST = 2.0**-10
_BITS = 30  # of results, so that a product of two fits
_LARGEST_SHIFT = 30
LARGEST = 2**31 - 1
"""Inputs are 32-bit accumulators."""


def integer_sqrt(n: Tensor) -> Tensor:
    """floor(sqrt(n)) for 0 <= n < 2^62, by Newton's method (I-BERT algorithm 4) from a power of two above."""
    root = torch.ones_like(n) << ((_bit_length(n) + 1) >> 1)
    for _ in range(6):  # the start is at most twice too large, and the error is squared at each step
        root = torch.minimum(root, (root + n // root) >> 1).clamp(min=1)
    return root - (root * root > n).to(n.dtype)


def integer_gelu(q: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """x * (1 + erf(x / sqrt 2)) / 2 (I-BERT algorithm 2); `scale` is 0-d, or has an entry per channel."""
    q, scale = _refined(q, scale)
    erf, erf_scale = _integer_erf(q, scale / math.sqrt(2))
    one = torch.floor(1 / erf_scale).long()
    return q * (erf + one), scale * erf_scale / 2


def _integer_erf(q: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    b = torch.floor(_ERF_B / scale).long()
    c = torch.floor(1 / (_ERF_A * scale.square())).long()
    square = (torch.minimum(q.abs(), -b) + b).square() + c
    shift = (_bit_length(c.abs()) - _BITS).clamp(min=0)  # so that q, of 32 bits, times the result fits
    # a is negative, and the result with it: it is turned so that its scale is positive
    return -q.sign() * (square >> shift), -_ERF_A * scale.square() * (1 << shift)


def integer_exp(q: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """exp(x) for x <= 0 as 2^-z * exp(p), p in (-ln 2, 0] (I-BERT algorithm 3), with results below 2^31."""
    q, scale = _refined(q, scale)
    ln2 = torch.floor(math.log(2) / scale).long()
    z = (-q // ln2).clamp(max=_LARGEST_SHIFT)
    p = torch.maximum(q + z * ln2, -ln2)
    b = torch.floor(_EXP_B / scale).long()
    c = torch.floor(_EXP_C / (_EXP_A * scale.square())).long()
    value = (p + b).square() + c
    shift = _bit_length(b.square() + c) - _BITS
    value = (value << (-shift).clamp(min=0)) >> shift.clamp(min=0)
    return value >> z, _EXP_A * scale.square() * torch.exp2(shift.double())


def integer_softmax(q: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax along the last axis (I-BERT section 3.5), with one integer division per row; scale 2^-30."""
    exponential, _ = integer_exp(q - q.amax(-1, keepdim=True), scale)
    factor = (1 << 2 * _BITS) // exponential.sum(-1, keepdim=True)
    return (exponential * factor) >> _BITS, torch.exp2(torch.tensor(-float(_BITS), dtype=torch.float64))


def integer_layer_norm(q: Tensor, scale: Tensor, eps: float = 0.0) -> tuple[Tensor, Tensor]:
    """(x - mean) / sqrt(variance + eps) along the last axis, n wide (I-BERT section 3.6).

    With y = n * q - sum(q), which is n * (q - mean) without rounding, it is sqrt(n) * y / sqrt(sum(y^2)).
    """
    n = q.shape[-1]
    y = n * q - q.sum(-1, keepdim=True)
    # As large as sum(y^2) < 2^61 allows, since the root drops a fraction; 2^12 more is enough.
    shift = ((61 - n.bit_length() - 2 * _bit_length(y.abs().amax(-1, keepdim=True))) >> 1).clamp(max=12)
    y = (y << shift.clamp(min=0)) >> (-shift).clamp(min=0)
    floor = (n**3 * eps / scale.square() * torch.exp2(2.0 * shift)).clamp(max=2.0**61).long()
    deviation = integer_sqrt(y.square().sum(-1, keepdim=True) + floor).clamp(min=1)
    result = (y << _BITS) // deviation
    return result, torch.exp2(torch.tensor(-float(_BITS), dtype=torch.float64)) * math.sqrt(n)


def _refined(q: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """The same numbers on a grid of at least 2^-10: a shift to the left, exact."""
    shift = torch.ceil(torch.log2(scale / _FINEST)).clamp(min=0).long()
    return q << shift, scale / (1 << shift).double()


def _bit_length(n: Tensor) -> Tensor:
    """Bits that n >= 0, int64, takes: 0 for 0, 1 for 1, 2 for 2 and 3."""
    length = torch.zeros_like(n)
    for step in (32, 16, 8, 4, 2, 1):
        large = (n >> step) > 0
        length = length + large.to(n.dtype) * step
        n = torch.where(large, n >> step, n)
    return length + (n > 0).to(n.dtype)
