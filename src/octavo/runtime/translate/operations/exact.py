"""Functions that every processor computes to the same bit, for files that ask for it.

Sums, products and quotients of two floats are fixed by IEEE 754. What kernels make of them is not: norms,
softmax and GELU sum and evaluate polynomials in an order, and with or without fused multiply-adds, that the
processor decides. One number that then rounds to the other integer moves all that follows, so such files
compute them in 64 bits, whose differences vanish when the result is rounded to 32, or write them out, an
operator for each step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from octavo.runtime.translate.context import ONNX_TYPES, Translation

IN_64_BITS = frozenset({"Exp", "Sigmoid", "Tanh"})
"""What activations are made of and ONNX Runtime has in 64 bits, as it has not Erf."""

# Φ(x) - ½ = x · P(x²) / Q(x²) for |x| <= 5.5, beyond which Φ is 0 or 1 to 2e-8. From low to high.
# A rational least-squares fit with weights raised where it errs (Lawson): GELU errs by 7e-9 before rounding.
_END = 5.5
_ABOVE = (0.398942175, 0.0340672549, 0.00469136114, 0.000171188366, 6.38489946e-06, 2.26758812e-08)
_BELOW = (1.0, 0.252059361, 0.0287713885, 0.00189748575, 7.44996273e-05, 1.19784446e-06)


def in_64_bits(t: Translation, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
    """Write an operator of 32-bit floats so that it computes in 64 bits."""
    doubles = [t.once("Cast", each, to=ONNX_TYPES[torch.float64]) for each in inputs]
    found = t.graph.add(operator, *doubles, **attributes)
    return t.graph.add("Cast", found, name=name, to=ONNX_TYPES[torch.float32])


def unary(t: Translation, operator: str, x: str, name: str = "") -> str:
    """Write a function of one number, to the bit where the file asks for that and there is a way."""
    if t.options.exact_floats and operator in IN_64_BITS:
        return in_64_bits(t, operator, x, name=name)
    if t.options.exact_floats and operator == "Erf":  # erf(x) = 2 Φ(√2 x) - 1
        half = _half(t, t.graph.add("Mul", x, _number(t, math.sqrt(2))))
        return t.graph.add("Add", half, half, name=name)
    return t.graph.add(operator, x, name=name)


def exact_gelu(t: Translation, x: str, name: str = "") -> str:
    """Write GELU, x Φ(x), in sums, products and one quotient."""
    return t.graph.add("Mul", x, t.graph.add("Add", _half(t, x), _number(t, 0.5)), name=name)


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
