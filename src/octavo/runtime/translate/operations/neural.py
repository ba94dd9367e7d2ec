"""Operations with weights, matrix products, norms and softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx

from octavo.errors import ModelError
from octavo.graph.sites.flow import operation
from octavo.runtime.translate.context import Translation, Value
from octavo.runtime.translate.operations.exact import exact_norm, exact_softmax
from octavo.runtime.translate.operations.table import translates
from octavo.runtime.translate.tables import gather_rows
from octavo.runtime.translate.weights import (
    add_apart,
    fits_accumulator,
    has_rows_of_zeros,
    linear_layer,
)


def _node(value: Any) -> fx.Node:
    assert isinstance(value, fx.Node)
    return value


@translates("linear")
def _linear(t: Translation, node: fx.Node) -> Value:
    """Write x Wᵀ + b on rows."""
    source, weight = _node(node.args[0]), _node(node.args[1])
    bias = node.args[2] if len(node.args) > 2 else None
    return linear_layer(t, node, source, weight, _node(bias) if bias is not None else None)


@translates("matmul", "bmm", "mm")
def _matmul(t: Translation, node: fx.Node) -> Value:
    return Value(name=t.graph.add("MatMul", t.full(node.args[0]), t.full(node.args[1]), name=node.name))


@translates("embedding")
def _embedding(t: Translation, node: fx.Node) -> Value:
    return Value(name=gather_rows(t, _node(node.args[0]), t.full(node.args[1], torch.int64), node.name))


@translates("layer_norm")
def _layer_norm(t: Translation, node: fx.Node) -> Value:
    source, shape = _node(node.args[0]), list(node.args[1])  # type: ignore[arg-type]
    given: list[Any] = [*node.args[2:5], *(None, None, 1e-5)[len(node.args) - 2 :]]
    weight, bias, epsilon = given[:3]
    flat = t.is_hidden_state(source) and len(shape) == 1
    inputs = [t.rows(source) if flat else t.full(source)]
    inputs.append(t.full(weight) if weight is not None else t.graph.constant(np.ones(shape), np.float32))
    inputs += [t.full(bias)] if bias is not None else []
    attributes: dict[str, Any] = {"axis": -len(shape), "epsilon": float(str(epsilon))}
    if t.options.exact_floats and len(shape) == 1:
        added = inputs[2] if bias is not None else None
        return Value(
            name=exact_norm(
                t, inputs[0], inputs[1], added, width=shape[0], epsilon=attributes["epsilon"], name=node.name
            ),
            flat=flat,
        )
    return Value(name=t.graph.add("LayerNormalization", *inputs, name=node.name, **attributes), flat=flat)


@translates("softmax")
def _softmax(t: Translation, node: fx.Node) -> Value:
    source, axis = t.full(node.args[0]), int(str(node.args[1]))
    if t.options.exact_floats:
        return Value(name=exact_softmax(t, source, axis, node.name))
    return Value(name=t.graph.add("Softmax", source, name=node.name, axis=axis))


@translates("conv1d", "conv2d")
def _convolution(t: Translation, node: fx.Node) -> Value:
    """Write a convolution; SqueezeBERT's linear layers are grouped ones of width 1."""
    axes = node.meta["val"].dim() - 2
    arguments = (*node.args, *(None, [1] * axes, [0] * axes, [1] * axes, 1)[len(node.args) - 2 :])
    source, weight, bias, stride, padding, dilation, groups = arguments
    added = _bias_apart(t, _node(source), _node(weight), bias)
    biases = [t.full(bias)] if bias is not None and added is None else []
    inputs = [t.full(source), t.full(weight), *biases]
    attributes = {"strides": list(stride), "pads": [*padding, *padding], "dilations": list(dilation)}  # type: ignore[arg-type, misc]
    product = t.graph.add("Conv", *inputs, name=node.name, group=groups, **attributes)
    if added is None:
        return Value(name=product)
    return Value(name=add_apart(t, product, added.reshape(-1, *[1] * axes), f"{node.name}.bias"))


def _bias_apart(t: Translation, source: fx.Node, weight: fx.Node, bias: Any) -> NDArray[np.float64] | None:
    """Return the bias of a convolution if it has to be added apart, 0 where there is none.

    That is where the accumulator's grid does not hold it, and where a float weight would be rounded with it.
    """
    tensor = t.tensor(bias) if isinstance(bias, fx.Node) and bias.op == "get_attr" else None
    numbers = None if tensor is None else tensor.detach().cpu().double().numpy()
    if weight not in t.weights:
        none = np.zeros(weight.meta["val"].shape[0]) if bias is None else None
        return (none if numbers is None else numbers) if t.rounds_activations else None
    if numbers is None:
        return None
    scale = t.weights[weight].scale.min().cpu().numpy()
    fits = fits_accumulator(numbers, t.value(source).scale, scale) and not has_rows_of_zeros(t, weight)
    return None if fits else numbers


@translates("im2col")
def _im2col(t: Translation, node: fx.Node) -> Value:
    """Write windows of an image as columns: a convolution each of whose kernels picks one place."""
    kernel, dilation, padding, stride = ([int(str(n)) for n in each] for each in node.args[1:5])  # type: ignore[union-attr]
    source = _node(node.args[0])
    channels, places = source.meta["val"].shape[1], int(np.prod(kernel))
    picks = np.tile(np.eye(places, dtype=np.float32).reshape(places, 1, *kernel), (channels, 1, 1, 1))
    columns = t.graph.add(
        "Conv",
        t.full(source),
        t.graph.constant(picks),
        group=channels,
        strides=stride,
        pads=[*padding, *padding],
        dilations=dilation,
    )
    shape = t.graph.constant([0, channels * places, -1], np.int64)
    return Value(name=t.graph.add("Reshape", columns, shape, name=node.name))


@translates("fft_fftn")
def _fft(t: Translation, node: fx.Node) -> list[Value]:
    """Write a Fourier transform of real numbers, its real and its imaginary part, as products with waves.

    ONNX has an operator for it, but the backends do not agree on what it computes.
    """
    sizes = node.args[1] if len(node.args) > 1 else node.kwargs.get("s")
    dims: Any = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")
    source = _node(node.args[0])
    rank = source.meta["val"].dim()
    axes = [int(dim) % rank for dim in dims or ()]
    if sizes is not None or not axes or min(axes) < rank - 2 or node.kwargs.get("norm") or len(node.args) > 3:
        raise ModelError(f"{node.target} of other axes, sizes or norms has no ONNX translation here")
    real, imaginary = t.full(source), ""
    for axis in axes:
        cosines, sines = _waves(t, source.meta["val"].shape[axis])

        def turned(name: str, waves: str, last: bool = axis == rank - 1) -> str:
            return t.graph.add("MatMul", *((name, waves) if last else (waves, name)))

        # (r + i·m) (cos - i·sin) = r·cos + m·sin + i (m·cos - r·sin)
        parts = turned(real, cosines), t.graph.add("Neg", turned(real, sines))
        if imaginary:
            parts = (
                t.graph.add("Add", parts[0], turned(imaginary, sines)),
                t.graph.add("Add", parts[1], turned(imaginary, cosines)),
            )
        real, imaginary = parts
    return [Value(name=real), Value(name=imaginary)]


def _waves(t: Translation, size: Any) -> tuple[str, str]:
    """Return cos and sin of 2π j k / n, (n, n) each, for a size that may vary."""
    zero, one = (t.full(number, torch.int64) for number in (0, 1))
    count = t.size(size)
    numbers = t.once("Range", zero, t.once("Squeeze", count, t.graph.constant([0], np.int64)), one)
    column = t.once("Unsqueeze", numbers, t.graph.constant([1], np.int64))
    turns = t.once("Mod", t.once("Mul", column, numbers), count)  # whole turns would cost digits
    share = t.once("Div", *(t.once("Cast", name, to=1) for name in (turns, count)))
    angles = t.once("Mul", share, t.full(2 * math.pi, torch.float32))
    return t.once("Cos", angles), t.once("Sin", angles)


@translates("real", "imag")
def _part(t: Translation, node: fx.Node) -> Value:
    parts = t.values[_node(node.args[0])]
    if not isinstance(parts, list):
        raise ModelError(f"{node.target} of what is no Fourier transform has no ONNX translation here")
    return parts[operation(node) == "imag"]
