"""Activation quantizers as QuantizeLinear, and the errors for those that a target cannot express."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from torch import fx

from octavo.errors import CalibrationError, SpecError
from octavo.graph.quantizers.quantizer import Quantizer, State
from octavo.runtime.translate.context import Translation, Value
from octavo.runtime.translate.options import INTEGERS

SHORT_INTEGERS = 21
"""The operator set that brought 16-bit and 4-bit integers to QuantizeLinear and DequantizeLinear."""


def quantize_activation(t: Translation, node: fx.Node, quantizer: Quantizer, factor: float) -> Value:
    """Put a tensor on its grid: QuantizeLinear (eq. 1) and DequantizeLinear (eq. 2), side by side."""
    value = t.value(node)
    if t.is_hidden_state(node):
        value = t.flatten(value, node)  # a view between the pair would keep runtimes from seeing it
    name = value.name
    scale = float(quantizer.scale[0]) * factor
    zero_point = int(quantizer.zero_point[0])
    dtype = integer_type(quantizer)
    if is_clipped(quantizer):
        bounds = [(edge - zero_point) * scale for edge in (quantizer.low, quantizer.high)]
        name = t.graph.add("Clip", name, *(t.graph.constant(edge, np.float32) for edge in bounds))
    if dtype is np.int8:
        # kernels multiply unsigned by signed bytes: the same numbers, shifted by 128
        dtype, zero_point = np.uint8, zero_point + 128
    step = t.graph.constant(scale, np.float32, "scale")
    offset = t.graph.constant(zero_point, dtype, "zero_point")
    integers = t.graph.add("QuantizeLinear", name, step, offset, name=quantizer.site.name + INTEGERS)
    floats = t.graph.add("DequantizeLinear", integers, step, offset)
    return Value(name=floats, scale=scale, flat=value.flat)


def integer_type(quantizer: Quantizer) -> type[np.integer]:
    """Return the smallest whole-byte type that holds a quantizer's grid."""
    wide = quantizer.spec.bits > 8
    if quantizer.low < 0:
        return np.int16 if wide else np.int8
    return np.uint16 if wide else np.uint8


def is_clipped(quantizer: Quantizer) -> bool:
    """Return whether a tensor is clipped before QuantizeLinear, which saturates where a byte ends.

    A narrower grid is, and one of 16 bits: OpenVINO leaves out the operators that would saturate there.
    """
    bounds = np.iinfo(integer_type(quantizer))
    return quantizer.spec.bits > 8 or (quantizer.low, quantizer.high) != (bounds.min, bounds.max)


def check_quantizers(quantizers: Iterable[Quantizer], opset: int) -> None:
    """Refuse what cannot be written: no static ranges, several scales for one activation, short integers."""
    every = list(quantizers)
    check_fixed(every)
    grouped = [q for q in every if q.site.kind == "activation" and q.scale.numel() > 1]
    if grouped:
        raise SpecError(
            f"{_named(grouped)} quantized with several scales per tensor, "
            "which integer kernels cannot express; split the groups into per-tensor pieces first "
            "(octavo.split_groups), or use a per-tensor recipe such as int8"
        )
    columns = [q for q in every if q.site.kind == "weight" and q.axis not in (None, 0)]
    if columns:
        raise SpecError(
            f"{_named(columns)} quantized with a scale per column, "
            "which integer kernels cannot express; use per-channel"
        )
    short = [q for q in every if q.spec.bits > 8 or (q.site.kind == "weight" and q.spec.bits <= 4)]
    if short and opset < SHORT_INTEGERS:
        raise SpecError(
            f"{_named(short)} stored in {short[0].spec.bits} bits, "
            f"which needs opset {SHORT_INTEGERS}, got {opset}"
        )


def check_fixed(quantizers: Iterable[Quantizer]) -> None:
    """Refuse quantizers without static ranges of integers."""
    every = list(quantizers)
    loose = [q for q in every if q.state is not State.FIX]
    if loose:
        raise CalibrationError(f"{_named(loose)} not fixed; calibrate the model, or load one that was saved")
    floats = [q for q in every if q.spec.format.is_float]
    if floats:
        raise SpecError(
            f"{_named(floats)} simulated in {floats[0].spec.format.variant_name}, in which no CPU kernel "
            "computes; use a recipe of integers, such as int8"
        )
    dynamic = [q for q in every if q.spec.dynamic]
    if dynamic:
        raise SpecError(
            f"{_named(dynamic)} quantized with ranges found at run time, which a file cannot hold; "
            "use a recipe with static ranges, such as int8"
        )


def _named(quantizers: list[Quantizer]) -> str:
    """Return the start of a sentence: 'layers.0.ffn_input, layers.0.ffn_output and 4 more are'."""
    names = [q.site.name for q in quantizers]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more} {'is' if len(names) == 1 else 'are'}"
