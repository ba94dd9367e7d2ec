"""Functions that every processor computes to the same bit, for files that ask for it.

Sums, products and quotients of two floats, and square roots, are fixed by IEEE 754. What kernels make of them
is not: norms, softmax and GELU sum and evaluate polynomials in an order, and with or without fused
multiply-adds, that the processor decides. One number that then rounds to the other integer moves all that
follows, so such files write them out, an operator for each step. 64 bits would do as well, but the build of
ONNX Runtime Web that transformers.js loads in browsers has no operators for them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from octavo.runtime.translate.context import Translation

# Φ(x) - ½ = x · P(x²) / Q(x²) for |x| <= 5.5, beyond which Φ is 0 or 1 to 2e-8; from low to high.
# A rational least-squares fit with weights raised where it errs (Lawson): GELU errs by 7e-9 before rounding.
_END = 5.5
_ABOVE = (0.398942175, 0.0340672549, 0.00469136114, 0.000171188366, 6.38489946e-06, 2.26758812e-08)
_BELOW = (1.0, 0.252059361, 0.0287713885, 0.00189748575, 7.44996273e-05, 1.19784446e-06)

# exp(x) = 2ⁿ (1 + f + f² P(f)) with n = round(x / ln 2) and f = x - n ln 2, as in Cephes; ln 2 in two parts,
# the first of which times n is exact.
_LARGEST = 126  # of n, so that 2ⁿ and 2⁻ⁿ are normal numbers
_LN2 = (0.693359375, -2.12194440e-4)
_EXP = (5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4)

_PARTS = 16  # the most that one operator adds up
_GRID = 14  # bits: sums of up to 2¹⁰ numbers of so many are exact in float, so that their order is the same


def exact_gelu(t: Translation, x: str, name: str = "") -> str:
    """Write GELU, x Φ(x), in sums, products and one quotient."""
    return t.graph.add("Mul", x, t.graph.add("Add", _half(t, x), _number(t, 0.5)), name=name)


def exact_erf(t: Translation, x: str, name: str = "") -> str:
    """Write erf(x) = 2 Φ(√2 x) - 1."""
    half = _half(t, t.graph.add("Mul", x, _number(t, math.sqrt(2))))
    return t.graph.add("Add", half, half, name=name)


def exact_sigmoid(t: Translation, x: str, name: str = "") -> str:
    """Write 1 / (1 + exp(-x))."""
    one = _number(t, 1)
    return t.graph.add("Div", one, t.graph.add("Add", one, _exp(t, t.graph.add("Neg", x))), name=name)


def exact_tanh(t: Translation, x: str, name: str = "") -> str:
    """Write tanh(x) = 1 - 2 / (1 + exp(2x))."""
    grown = t.graph.add("Add", _exp(t, t.graph.add("Add", x, x)), _number(t, 1))
    return t.graph.add("Sub", _number(t, 1), t.graph.add("Div", _number(t, 2), grown), name=name)


EXACT = {"Erf": exact_erf, "Sigmoid": exact_sigmoid, "Tanh": exact_tanh}
"""Functions of one number that activations are made of."""


def exact_softmax(t: Translation, x: str, axis: int, name: str = "") -> str:
    """Write softmax along an axis."""
    # the difference of two infinities has no exponential: where all is masked, all weigh alike
    x = t.graph.add("Max", x, _number(t, float(np.finfo(np.float32).min)))
    powers = _exp(t, t.graph.add("Sub", x, _reduced(t, "ReduceMax", x, axis)))
    return t.graph.add("Div", powers, _sum_of_fractions(t, powers, axis), name=name)


def exact_norm(
    t: Translation, x: str, weight: str, bias: str | None, *, width: int, epsilon: float, name: str = ""
) -> str:
    """Write a LayerNorm over the last axis; two of one tensor share all but weight and bias."""
    found = t.shared(("exact norm", x, str(epsilon)), lambda: _normalized(t, x, width, epsilon))
    if bias is None:
        return t.graph.add("Mul", found, weight, name=name)
    return t.graph.add("Add", t.graph.add("Mul", found, weight), bias, name=name)


def _normalized(t: Translation, x: str, width: int, epsilon: float) -> str:
    count = _number(t, width)
    centred = t.graph.add("Sub", x, t.graph.add("Div", _row_sums(t, x, width), count))
    variance = t.graph.add("Div", _row_sums(t, t.graph.add("Mul", centred, centred), width), count)
    return t.graph.add("Div", centred, t.graph.add("Sqrt", t.graph.add("Add", variance, _number(t, epsilon))))


def _row_sums(t: Translation, x: str, width: int) -> str:
    """Write sums over the last axis, (..., 1), in a fixed order: parts are added up, then theirs."""
    while width > 1:
        parts = next((n for n in range(min(width, _PARTS), 1, -1) if width % n == 0), 0)
        part, rest = (width // parts, 0) if parts else divmod(width, _PARTS)
        sizes = [part] * (parts or _PARTS) + [rest] * (rest > 0)
        split = t.graph.node("Split", [x, t.graph.constant(sizes, np.int64)], outputs=len(sizes), axis=-1)
        x = t.graph.add("Sum", *split[: parts or _PARTS])
        if rest:
            x = t.graph.add("Concat", x, split[-1], axis=-1)
        width = part + rest
    return x


def _sum_of_fractions(t: Translation, x: str, axis: int) -> str:
    """Write the sum of numbers from 0 to 1 along an axis of any length, to 28 bits after the point.

    Each number is taken apart into two integers so small that their sums are exact in any order.
    """
    grid, step = _number(t, 2.0**_GRID), _number(t, 2.0**-_GRID)
    scaled = t.graph.add("Mul", x, grid)
    coarse = t.graph.add("Round", scaled)
    fine = t.graph.add("Round", t.graph.add("Mul", t.graph.add("Sub", scaled, coarse), grid))
    sums = [_reduced(t, "ReduceSum", each, axis) for each in (coarse, fine)]
    return t.graph.add("Mul", t.graph.add("Add", sums[0], t.graph.add("Mul", sums[1], step)), step)


def _reduced(t: Translation, operator: str, x: str, axis: int) -> str:
    if operator == "ReduceMax" and t.graph.opset < 18:
        return t.graph.add(operator, x, axes=[axis], keepdims=1)
    return t.graph.add(operator, x, t.graph.constant([axis], np.int64), keepdims=1)


def _exp(t: Translation, x: str) -> str:
    """Write exp(x), held between 2⁻¹²⁶ and 2¹²⁶."""
    end = _number(t, _LARGEST * math.log(2))
    inner = t.graph.add("Clip", x, _number(t, -_LARGEST * math.log(2)), end)
    turns = t.graph.add("Round", t.graph.add("Mul", inner, _number(t, 1 / math.log(2))))
    rest = inner
    for part in _LN2:
        rest = t.graph.add("Sub", rest, t.graph.add("Mul", turns, _number(t, part)))
    square = t.graph.add("Mul", t.graph.add("Mul", rest, rest), _polynomial(t, _EXP, rest))
    mantissa = t.graph.add("Add", t.graph.add("Add", square, rest), _number(t, 1))
    # negative indices count from the end
    powers = 2.0 ** np.array([*range(_LARGEST + 1), *range(-_LARGEST, 0)])
    table = t.graph.constant(powers, np.float32)
    return t.graph.add("Mul", mantissa, t.graph.add("Gather", table, t.graph.add("Cast", turns, to=7)))


def _half(t: Translation, x: str) -> str:
    """Write Φ(x) - ½."""
    inner = t.graph.add("Clip", x, _number(t, -_END), _number(t, _END))
    square = t.graph.add("Mul", inner, inner)
    quotient = t.graph.add("Div", _polynomial(t, _ABOVE, square), _polynomial(t, _BELOW, square))
    return t.graph.add("Mul", inner, quotient)


def _polynomial(t: Translation, coefficients: Sequence[float], x: str) -> str:
    """Write a polynomial by Horner's rule."""
    *others, found = (_number(t, each) for each in coefficients)
    for each in reversed(others):
        found = t.graph.add("Add", t.graph.add("Mul", found, x), each)
    return found


def _number(t: Translation, value: float) -> str:
    return t.graph.constant(value, np.float32)
