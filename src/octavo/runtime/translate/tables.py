"""Embedding tables as integers, of which only the rows that are read become floats."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from octavo.graph.quantizers.quantizer import Quantizer
from octavo.numerics.affine import fits_half
from octavo.runtime.translate.context import ONNX_TYPES, Translation
from octavo.runtime.translate.grids import integer_type
from octavo.runtime.translate.packing import is_packed, pack, unpack
from octavo.runtime.translate.weights import grid_along, integers_of, store

_POSITIONS = 1024  # tables of positions are, up to so many rows, where positions count from 0 on
_FEW_ROWS = 16  # tables of so few rows, such as token types, are dequantized when a runtime loads them


def gather_rows(t: Translation, weight: fx.Node, indices: str, name: str) -> str:
    """Read rows of a table by index; of an integer table only the rows read are dequantized."""
    if weight not in t.weights:
        return t.graph.add("Gather", t.full(weight), indices, name=name, axis=0)
    quantizer, integers = integers_of(t, weight)
    scale, zero_point = grid_along(quantizer, 0)
    # Cast and Mul, not DequantizeLinear: ONNX Runtime would move that behind the views that follow, and fail
    if not is_packed(quantizer):
        if len(integers) <= _FEW_ROWS:
            return t.graph.add("Gather", _whole_table(t, weight), indices, name=name, axis=0)
        end = _counted_to(t, indices)
        if end is not None and len(integers) <= _POSITIONS:
            rows = t.graph.add("Unsqueeze", _whole_table(t, weight), t.graph.constant([0], np.int64))
            bounds = [t.graph.constant([0], np.int64), end, t.graph.constant([1], np.int64)]
            return t.graph.add("Slice", rows, *bounds, name=name)
    rows = _integer_rows(t, quantizer, integers, indices)
    short = fits_half(torch.from_numpy(scale))
    step = _per_row(t, scale, np.float16 if short else np.float32, indices)
    offset = _per_row(t, zero_point, integer_type(quantizer), indices) if zero_point.any() else None
    return _dequantized(t, rows, step, offset, name)


def _whole_table(t: Translation, weight: fx.Node) -> str:
    """Write a table as floats, which a runtime computes once, when it loads the file."""
    quantizer, integers = integers_of(t, weight)
    scale, zero_point = grid_along(quantizer, 0)
    short = fits_half(torch.from_numpy(scale))
    column = (-1, 1) if scale.ndim else ()
    step = t.graph.constant(scale.reshape(column), np.float16 if short else np.float32, "scale")
    shift = t.graph.constant(zero_point.reshape(column), np.float32, "scale") if zero_point.any() else None
    stored = _floats(t, store(t, quantizer, integers.cpu().numpy()))
    return _dequantized(t, stored, _floats(t, step) if short else step, shift, "")


def _counted_to(t: Translation, indices: str) -> str | None:
    """Return the end, a tensor of one number, of indices (1, n) that count from 0: those of positions."""
    added = t.graph.maker(indices)
    counted = t.graph.maker(added.input[0]) if added is not None and added.op_type == "Unsqueeze" else None
    if added is None or counted is None or counted.op_type != "Range":
        return None
    end = t.graph.maker(counted.input[1])
    zero, one = (t.full(number, torch.int64) for number in (0, 1))
    counts_up = [counted.input[0], counted.input[2]] == [zero, one]
    leading = added.input[1] == t.graph.constant([0], np.int64)
    return (
        str(end.input[0]) if end is not None and end.op_type == "Squeeze" and counts_up and leading else None
    )


def _floats(t: Translation, integers: str) -> str:
    return t.graph.add("Cast", integers, to=ONNX_TYPES[torch.float32])


def _dequantized(t: Translation, floats: str, step: str, shift: str | None, name: str) -> str:
    shifted = floats if shift is None else t.graph.add("Sub", floats, shift)
    return t.graph.add("Mul", shifted, step, name=name)


def _per_row(t: Translation, array: NDArray[Any], kind: Any, indices: str) -> str:
    """Read scales or zero-points of rows, as floats, from what they are stored as."""
    if array.ndim == 0:
        return t.graph.constant(array, np.float32)
    found = t.graph.add("Gather", t.graph.constant(array[:, None], kind, "scale"), indices, axis=0)
    return found if kind is np.float32 else _floats(t, found)


def _integer_rows(t: Translation, quantizer: Quantizer, integers: Tensor, indices: str) -> str:
    """Read the integers of rows, as floats; tables of up to 4 bits are read as bytes and taken apart."""
    if not is_packed(quantizer):
        table = store(t, quantizer, integers.cpu().numpy())
        return _floats(t, t.graph.add("Gather", table, indices, axis=0))
    table, bits = pack(t, quantizer, integers)
    return unpack(t, t.graph.add("Gather", table, indices, axis=0), bits, quantizer.low)
