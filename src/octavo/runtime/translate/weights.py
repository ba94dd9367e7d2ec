"""Weights as integers, each stored once: linear layers, embedding tables, and other readers of weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from octavo.graph.quantizers.quantizer import Quantizer
from octavo.numerics.affine import fits_half
from octavo.runtime.translate.context import ONNX_TYPES, Translation, Value
from octavo.runtime.translate.grids import integer_type, is_clipped

_BIAS_LIMIT = 2**30
_SHIFT = 128  # from signed bytes to unsigned ones
_POSITIONS = 1024  # tables of positions are, up to so many rows, where positions count from 0 on
_FEW_ROWS = 16  # tables of so few rows, such as token types, are dequantized when a runtime loads them
ONNX_RUNTIME = "com.microsoft"
"""The domain of ONNX Runtime's own operators."""


def integers_of(t: Translation, node: fx.Node) -> tuple[Quantizer, Tensor]:
    """Return the quantizer of a weight and its integers, int32, in the weight's own shape."""
    quantizer = t.weights[node]
    # a constant is on the grid already: what AdaRound or training decided about rounding is kept
    value = quantizer.constant if quantizer.constant is not None else t.tensor(node.all_input_nodes[0])
    assert value is not None
    return quantizer, quantizer.integers(value.detach())


def store(
    t: Translation, quantizer: Quantizer, integers: NDArray[np.int32], *, transposed: bool = False
) -> str:
    """Store an initializer of 4, 8 or 16 bits; layers that share a weight find it stored already."""
    name = quantizer.site.name
    key = (name, transposed)
    if key not in t.stored:
        array = integers.T if transposed else integers
        if quantizer.spec.bits <= 4:
            t.stored[key] = t.graph.packed_initializer(array, 4, quantizer.low < 0, name)
        else:
            t.stored[key] = t.graph.initializer(array.astype(integer_type(quantizer)), name)
    return t.stored[key]


def _zero_point(t: Translation, quantizer: Quantizer, values: NDArray[np.int32]) -> str:
    if quantizer.spec.bits <= 4:
        return t.graph.packed_initializer(values, 4, quantizer.low < 0, "zero_point")
    return t.graph.constant(values, integer_type(quantizer), "zero_point")


def grid_along(quantizer: Quantizer, axis: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return scale and zero-point: scalars, or vectors along the weight's axis."""
    if quantizer.scale.numel() == 1:
        return quantizer.scale.cpu().numpy().reshape(()), quantizer.zero_point.cpu().numpy().reshape(())
    assert quantizer.axis == axis, (quantizer.site.name, quantizer.axis)
    index = quantizer.index
    return quantizer.scale[index].cpu().numpy(), quantizer.zero_point[index].cpu().numpy()


def dequantized_weight(t: Translation, node: fx.Node) -> str:
    """Write a weight in its own shape, dequantized where it stands: vectors of norms, tables, kernels."""
    quantizer, integers = integers_of(t, node)
    scale, zero_point = grid_along(quantizer, quantizer.axis or 0)
    if _is_packed_table(quantizer):  # a tied decoder reads it whole
        floats = _unpack(t, *_packed_table(t, quantizer, integers), quantizer.low)
        shifted = t.once("Sub", floats, t.graph.constant(zero_point[..., None], np.float32))
        return t.once("Mul", shifted, t.graph.constant(scale[..., None], np.float32))
    name = store(t, quantizer, integers.cpu().numpy())
    grid = [t.graph.constant(scale, np.float32, "scale"), _zero_point(t, quantizer, zero_point)]
    axis = {"axis": quantizer.axis} if scale.ndim else {}
    return t.once("DequantizeLinear", name, *grid, **axis)


# -- linear layers -------------------------------------------------------------------------------------------


def linear_layer(
    t: Translation, node: fx.Node, source: fx.Node, weight: fx.Node, bias: fx.Node | None
) -> Value:
    """Write x Wᵀ + b, W stored transposed (in, out); a hidden state x as the matrix of its rows."""
    flat = t.is_hidden_state(source)
    x = t.rows(source) if flat else t.full(source)
    factor = t.factors.get(node, 1.0)
    name = t.weights[weight].site.name.removesuffix(".weight") if weight in t.weights else node.name
    if bias is None or _is_dropped(t, bias):
        return Value(name=t.graph.add("MatMul", x, _matrix(t, weight, factor)[0], name=name), flat=flat)
    offset = t.tensor(bias)
    assert offset is not None
    label = f"{name}.bias" if weight in t.weights else str(bias.target)
    numbers = (offset.detach().cpu().double() * factor).numpy()
    operands = _byte_operands(t, x, weight, factor) if t.options.fuses else None
    if operands is not None:
        added = t.graph.constant(numbers, np.float32, label)
        product = t.graph.add("MatMulIntegerToFloat", *operands, added, name=name, domain=ONNX_RUNTIME)
        return Value(name=product, flat=flat)
    matrix, scale = _matrix(t, weight, factor)
    fits = fits_accumulator(numbers, t.value(source).scale, scale) and not has_rows_of_zeros(t, weight)
    apart = not fits or _ends_clipped(t, node) or _is_coarse(t, source, weight)
    if apart if scale is not None else t.rounds_activations:
        return Value(
            name=add_apart(t, t.graph.add("MatMul", x, matrix, name=name), numbers, label), flat=flat
        )
    if flat or source.meta["val"].dim() == 2:
        added = _bias(t, numbers, t.value(source).scale, scale, label)
        return Value(name=t.graph.add("Gemm", x, matrix, added, name=name), flat=flat)
    added = t.graph.constant(numbers, np.float32, label)
    return Value(name=t.graph.add("Add", t.graph.add("MatMul", x, matrix, name=name), added), flat=flat)


def _is_dropped(t: Translation, bias: fx.Node) -> bool:
    """Return whether OpenVINO drops a bias, of zeros; it would call the product by the sum's name then."""
    offset = t.tensor(bias)
    return not t.options.flattens and offset is not None and not bool(offset.any())


def fits_accumulator(
    bias: NDArray[np.float64], step: float | None, scale: NDArray[np.float32] | None
) -> bool:
    """Return whether a bias on the accumulator's grid is far from the ends of 32 bits."""
    return (
        step is None or scale is None or bool(np.abs(bias / (np.float64(step) * scale)).max() <= _BIAS_LIMIT)
    )


def has_rows_of_zeros(t: Translation, weight: fx.Node) -> bool:
    """Return whether a quantized weight has rows of zeros, those of padding tokens, say.

    Their scale is 1, a grid far too coarse for a bias, which is all that such a row gives.
    """
    if weight not in t.weights:
        return False
    quantizer, integers = integers_of(t, weight)
    zero_point = grid_along(quantizer, 0)[1].reshape(-1, 1)
    return bool((integers.cpu().numpy().reshape(len(integers), -1) == zero_point).all(axis=1).any())


def _ends_clipped(t: Translation, node: fx.Node) -> bool:
    """Return whether a result goes to a grid that is not a byte's, dropout aside."""
    for user in node.users:
        if user.op == "call_module":
            module = t.module.get_submodule(str(user.target))
            if is_clipped(module) if isinstance(module, Quantizer) else _ends_clipped(t, user):
                return True
    return False


def _is_coarse(t: Translation, source: fx.Node, weight: fx.Node) -> bool:
    """Return whether one factor of a product has fewer bits than a byte: too coarse a grid for a bias.

    There are no integer kernels for such products, so that adding in float costs nothing.
    """
    module = t.module.get_submodule(str(source.target)) if source.op == "call_module" else None
    factors = (module, t.weights.get(weight))
    return any(isinstance(each, Quantizer) and each.spec.bits < 8 for each in factors)


def add_apart(t: Translation, product: str, bias: NDArray[np.float64], name: str) -> str:
    """Add a bias by subtracting its negative, which ONNX Runtime does not fuse with the product.

    It would round the bias to 32 bits where that overflows, compute a product in float whose result goes to
    another grid than a byte's, and round a float weight to 8 bits because what it multiplies is rounded.
    """
    return t.graph.add("Sub", product, t.graph.constant(-bias, np.float32, name))


def _matrix(t: Translation, weight: fx.Node, factor: float) -> tuple[str, NDArray[np.float32] | None]:
    """Return Wᵀ (in, out) in float, and its scales (scalar or (out,)) if it is stored as integers."""
    if weight not in t.weights:
        if not _is_read_once(t.module, weight):
            assert factor == 1.0, weight  # `takes_factor` said so
            return t.once("Transpose", t.full(weight), perm=[1, 0]), None
        tensor = t.tensor(weight)
        assert tensor is not None
        array = (tensor.detach().cpu() * factor).numpy().T
        return t.graph.initializer(array, str(weight.target)), None
    quantizer = t.weights[weight]
    if _is_tied(quantizer):
        assert factor == 1.0, weight  # `takes_factor` said so
        return t.once("Transpose", t.full(weight), perm=[1, 0]), grid_along(quantizer, 0)[0]
    name, step, offset, scale = _integer_matrix(t, weight, factor)
    axis = {"axis": 1} if scale.ndim else {}
    return t.once("DequantizeLinear", name, step, offset, **axis), scale


def takes_factor(module: fx.GraphModule, layer: fx.Node) -> bool:
    """Return whether the weight of a linear layer can be multiplied by a number for this layer alone.

    Integers have a scale of their own in every layer that reads them; floats that others read do not.
    """
    weight = layer.args[1]
    assert isinstance(weight, fx.Node)
    if weight.op == "call_module":
        quantizer = module.get_submodule(str(weight.target))
        return isinstance(quantizer, Quantizer) and not _is_tied(quantizer)
    return _is_read_once(module, weight)


def _is_read_once(module: fx.GraphModule, weight: fx.Node) -> bool:
    """Return whether a weight is a parameter that one operation reads; tied ones have several names."""
    if weight.op != "get_attr":
        return False
    tensor = _attribute(module, weight)
    others = (node for node in module.graph.nodes if node.op == "get_attr" and node is not weight)
    return len(weight.users) == 1 and all(_attribute(module, node) is not tensor for node in others)


def _attribute(module: fx.GraphModule, node: fx.Node) -> object:
    value: object = module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value


def _is_tied(quantizer: Quantizer) -> bool:
    """Return whether a layer reads the token embeddings, which are stored once, as the table."""
    return quantizer.site.role == "embedding_weight"


def _integer_matrix(
    t: Translation, weight: fx.Node, factor: float
) -> tuple[str, str, str, NDArray[np.float32]]:
    """Return the names of Wᵀ's integers (in, out), their scale and zero-point, and the scale itself."""
    quantizer, integers = integers_of(t, weight)
    scale, zero_point = grid_along(quantizer, 0)
    scale = (scale * np.float32(factor)).astype(np.float32)
    step = t.graph.constant(scale, np.float32, "scale")
    if t.options.unsigned_weights and integer_type(quantizer) is np.int8 and quantizer.spec.bits > 4:
        shifted = (integers.cpu().numpy() + _SHIFT).astype(np.uint8)
        return (
            _store_shifted(t, quantizer, shifted),
            step,
            t.graph.constant(zero_point + _SHIFT, np.uint8, "zero_point"),
            scale,
        )
    name = store(t, quantizer, integers.cpu().numpy(), transposed=True)
    return name, step, _zero_point(t, quantizer, zero_point), scale


def _store_shifted(t: Translation, quantizer: Quantizer, integers: NDArray[np.uint8]) -> str:
    key = (f"{quantizer.site.name} shifted", True)
    if key not in t.stored:
        t.stored[key] = t.graph.initializer(integers.T, quantizer.site.name)
    return t.stored[key]


def _byte_operands(t: Translation, x: str, weight: fx.Node, factor: float) -> list[str] | None:
    """Return what MatMulIntegerToFloat reads, if x and W are bytes.

    ONNX Runtime makes QGemm of a Gemm, whose layers take about 1.3 times as long (docs/deploy.md).
    """
    quantizer = t.weights.get(weight)
    origin = _bytes_behind(t, x)
    if origin is None or quantizer is None or _is_tied(quantizer) or not 4 < quantizer.spec.bits <= 8:
        return None
    integers, step, offset = origin
    matrix, scale, zero_point, _ = _integer_matrix(t, weight, factor)
    return [integers, matrix, step, scale, offset, zero_point]


def _bytes_behind(t: Translation, name: str) -> list[str] | None:
    """Return the bytes a tensor was dequantized from, in its own shape, with their scale and zero-point."""
    node = t.graph.maker(name)
    if node is not None and node.op_type == "DequantizeLinear":
        source = t.graph.maker(node.input[0])
        quantized = source is not None and source.op_type == "QuantizeLinear"
        return list(node.input) if quantized and t.graph.bits(node.input[2]) == 8 else None
    if node is None or node.op_type not in ("Reshape", "Transpose", "Gather"):
        return None
    origin = _bytes_behind(t, node.input[0])
    if origin is None:
        return None
    attributes = {each.name: list(each.ints) or each.i for each in node.attribute}
    return [t.once(node.op_type, origin[0], *node.input[1:], **attributes), *origin[1:]]


def _bias(
    t: Translation,
    numbers: NDArray[np.float64],
    step: float | None,
    scale: NDArray[np.float32] | None,
    name: str,
) -> str:
    """Write the bias as int32 on the accumulator's grid, scale of x times scale of W: added for free."""
    if step is None or scale is None:
        return t.graph.constant(numbers, np.float32, name)
    grid = np.float32(step) * scale
    integers = np.rint(numbers / grid)
    stored = t.graph.constant(integers, np.int32, name)
    steps = [
        t.graph.constant(np.float32(step), np.float32, "scale"),
        t.graph.constant(scale, np.float32, "scale"),
    ]
    # both factors are in the file already; runtimes multiply them once, when they load it
    product = t.once("Mul", *steps) if grid.ndim else t.graph.constant(grid, np.float32, "scale")
    axis = {"axis": 0} if grid.ndim else {}
    return t.once("DequantizeLinear", stored, product, **axis)


# -- embedding tables ----------------------------------------------------------------------------------------


def gather_rows(t: Translation, weight: fx.Node, indices: str, name: str) -> str:
    """Read rows of a table by index; of an integer table only the rows read are dequantized."""
    if weight not in t.weights:
        return t.graph.add("Gather", t.full(weight), indices, name=name, axis=0)
    quantizer, integers = integers_of(t, weight)
    scale, zero_point = grid_along(quantizer, 0)
    # Cast and Mul, not DequantizeLinear: ONNX Runtime would move that behind the views that follow, and fail
    if not _is_packed_table(quantizer):
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
    if not _is_packed_table(quantizer):
        table = store(t, quantizer, integers.cpu().numpy())
        return _floats(t, t.graph.add("Gather", table, indices, axis=0))
    table, bits = _packed_table(t, quantizer, integers)
    return _unpack(t, t.graph.add("Gather", table, indices, axis=0), bits, quantizer.low)


def _is_packed_table(quantizer: Quantizer) -> bool:
    return quantizer.site.role == "embedding_weight" and quantizer.spec.bits <= 4


def _packed_table(t: Translation, quantizer: Quantizer, integers: Tensor) -> tuple[str, int]:
    """Return a table as bytes, and how many bits a number takes in them."""
    bits = 2 if quantizer.spec.bits == 2 else 4
    if integers.shape[1] % (8 // bits):
        bits = 8
    name = quantizer.site.name
    if (name, False) not in t.stored:
        t.stored[name, False] = t.graph.initializer(
            _pack_columns((integers - quantizer.low).cpu().numpy(), bits), name
        )
    return t.stored[name, False], bits


def _unpack(t: Translation, packed: str, bits: int, low: int) -> str:
    """Turn bytes (…, n) into the integers in them, floats (…, n · 8 / bits)."""
    digits = _digits(t, t.once("Cast", packed, to=ONNX_TYPES[torch.float32]), bits)
    joined = t.once("Concat", *digits, axis=-1) if len(digits) > 1 else digits[0]
    return t.once("Add", joined, t.graph.constant(float(low), np.float32))


def _pack_columns(integers: NDArray[np.int32], bits: int) -> NDArray[np.uint8]:
    """Pack (rows, width) into bytes (rows, n), n = width · bits / 8: byte j has columns j, j + n, …"""
    parts = np.split(integers.astype(np.uint8), 8 // bits, axis=1)
    packed = np.zeros_like(parts[0])
    for digit, part in enumerate(parts):
        packed |= part << (digit * bits)
    return packed


def _digits(t: Translation, byte: str, bits: int) -> list[str]:
    """Return a byte's digits to base 2**bits, lowest first, by division: not every backend shifts bytes."""
    base = t.graph.constant(float(2**bits), np.float32)
    digits = []
    for _ in range(8 // bits - 1):
        quotient = t.graph.add("Floor", t.graph.add("Div", byte, base))
        digits.append(t.graph.add("Sub", byte, t.graph.add("Mul", quotient, base)))
        byte = quotient
    return [*digits, byte]
