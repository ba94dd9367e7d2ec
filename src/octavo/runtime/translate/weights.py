"""Weights as integers, each stored once: linear layers, and other readers of weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, fx

from octavo.graph.quantizers.quantizer import Quantizer
from octavo.runtime.translate.context import Translation, Value
from octavo.runtime.translate.grids import integer_type, is_clipped
from octavo.runtime.translate.packing import is_packed, pack, unpack

_BIAS_LIMIT = 2**30
_SHIFT = 128  # from signed bytes to unsigned ones
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
    if is_packed(quantizer):  # a tied decoder reads it whole
        floats = unpack(t, *pack(t, quantizer, integers), quantizer.low)
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
