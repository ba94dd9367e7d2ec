"""AdaRound's iterations on a GPU: a product and one kernel each.

The kernel goes from E A, half the loss's gradient less C, to the E of the next iteration: the gradient by V,
Adam's step, h(V). Written out that is some twenty kernels, and launching them takes the time. The product may
use TensorFloat-32: on layers of MiniLM a learning rate 1 % larger changes the losses in the end as much.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from octavo.numerics.adaround import GAMMA, ZETA
from octavo.numerics.kernels import fast_matmul

_BLOCK = 1024
# torch.optim.Adam's own
_DECAY, _SQUARE_DECAY, _EPSILON = 0.9, 0.999, 1e-8
_LOWEST, _STRETCH = tl.constexpr(GAMMA), tl.constexpr(ZETA - GAMMA)
_FRESH, _SQUARE_FRESH, _TINY = (
    tl.constexpr(1 - _DECAY),
    tl.constexpr(1 - _SQUARE_DECAY),
    tl.constexpr(_EPSILON),
)


class Descent:
    """Adam on V, in place.

    Arguments:
        v, offset, reach, shift: (outputs, inputs), with E = offset + reach * h(V) and C the shift.
        moment: A, (inputs, inputs).
    """

    def __init__(
        self, v: Tensor, offset: Tensor, reach: Tensor, moment: Tensor, shift: Tensor, learning_rate: float
    ) -> None:
        assert v.is_contiguous()
        self.v, self.moment, self.learning_rate = v, moment, learning_rate
        self.offset, self.reach, self.shift = (each.contiguous() for each in (offset, reach, shift))
        h = (v.sigmoid() * (ZETA - GAMMA) + GAMMA).clamp(0, 1)
        self.error = torch.addcmul(self.offset, self.reach, h)
        self.product = torch.empty_like(v)
        self.mean, self.square = torch.zeros_like(v), torch.zeros_like(v)
        self.steps = 0

    def step(self, weight: float, beta: float | None) -> None:
        """Take a step, with the weight of the rounding term and its exponent, None to leave it out."""
        with fast_matmul():
            torch.mm(self.error, self.moment, out=self.product)
        self.steps += 1
        with torch.cuda.device_of(self.v):
            _step[(triton.cdiv(self.v.numel(), _BLOCK),)](
                *(self.v, self.mean, self.square, self.error),
                *(self.product, self.shift, self.offset, self.reach),
                self.v.numel(),
                self.learning_rate / (1 - _DECAY**self.steps),
                (1 - _SQUARE_DECAY**self.steps) ** -0.5,
                0.0 if beta is None else 2 * weight * beta,
                0.0 if beta is None else beta - 2.0,
                BLOCK=_BLOCK,
            )


@triton.jit
def _rectified(sigmoid):  # type: ignore[no-untyped-def]
    return tl.minimum(tl.maximum(sigmoid * _STRETCH + _LOWEST, 0.0), 1.0)


@triton.jit  # type: ignore[untyped-decorator]
def _step(  # type: ignore[no-untyped-def]
    v,
    mean,
    square,
    error,
    product,
    shift,
    offset,
    reach,
    count,
    rate,
    correction,
    push,
    power,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = at < count
    # 1 - |2 h - 1|^beta of the rounding term, by h; 0 to a power is a number here, so that times 0 it is 0
    x = tl.load(v + at, mask=there, other=0.0)
    sigmoid = tl.sigmoid(x)
    h = _rectified(sigmoid)
    centred = 2 * h - 1
    size = tl.exp2(power * tl.log2(tl.maximum(tl.abs(centred), 1e-30)))
    half_gradient = tl.load(product + at, mask=there, other=0.0) + tl.load(shift + at, mask=there, other=0.0)
    reaches = tl.load(reach + at, mask=there, other=0.0)
    by_h = 2 * reaches * half_gradient - push * size * centred
    gradient = tl.where((h > 0) & (h < 1), by_h, 0.0) * sigmoid * (1 - sigmoid) * _STRETCH
    # Adam
    m = tl.load(mean + at, mask=there, other=0.0)
    m += _FRESH * (gradient - m)
    s = tl.load(square + at, mask=there, other=0.0)
    s += _SQUARE_FRESH * (gradient * gradient - s)
    x -= rate * m / (tl.sqrt(s) * correction + _TINY)
    tl.store(v + at, x, mask=there)
    tl.store(mean + at, m, mask=there)
    tl.store(square + at, s, mask=there)
    h = _rectified(tl.sigmoid(x))
    tl.store(error + at, tl.load(offset + at, mask=there, other=0.0) + reaches * h, mask=there)
