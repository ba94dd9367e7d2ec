"""Operations with weights, matrix products, norms and softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import fx

from octavo.errors import ModelError
from octavo.runtime.translate.context import Translation, Value
from octavo.runtime.translate.operations.table import translates
from octavo.runtime.translate.weights import gather_rows, linear_layer


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
    flat = t.is_hidden_state(source) and t.value(source).flat and len(shape) == 1
    inputs = [t.rows(source) if flat else t.full(source)]
    inputs.append(t.full(weight) if weight is not None else t.graph.constant(np.ones(shape), np.float32))
    inputs += [t.full(bias)] if bias is not None else []
    name = t.graph.add(
        "LayerNormalization", *inputs, name=node.name, axis=-len(shape), epsilon=float(str(epsilon))
    )
    return Value(name=name, flat=flat)


@translates("softmax")
def _softmax(t: Translation, node: fx.Node) -> Value:
    return Value(
        name=t.graph.add("Softmax", t.full(node.args[0]), name=node.name, axis=int(str(node.args[1])))
    )


@translates("conv1d", "conv2d")
def _convolution(t: Translation, node: fx.Node) -> Value:
    """Write a convolution; SqueezeBERT's linear layers are grouped ones of width 1."""
    axes = node.meta["val"].dim() - 2
    arguments = (*node.args, *(None, [1] * axes, [0] * axes, [1] * axes, 1)[len(node.args) - 2 :])
    source, weight, bias, stride, padding, dilation, groups = arguments
    inputs = [t.full(source), t.full(weight), *([t.full(bias)] if bias is not None else [])]
    attributes = {"strides": list(stride), "pads": [*padding, *padding], "dilations": list(dilation)}  # type: ignore[arg-type, misc]
    return Value(name=t.graph.add("Conv", *inputs, name=node.name, group=groups, **attributes))


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
def _fft(t: Translation, node: fx.Node) -> Value:
    """Write a Fourier transform of real numbers; ONNX has complex ones as a last axis of two."""
    sizes = node.args[1] if len(node.args) > 1 else node.kwargs.get("s")
    dims = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")
    if sizes is not None or dims is None or "norm" in node.kwargs or len(node.args) > 3:
        raise ModelError(f"{node.target} with other sizes or norms has no ONNX translation here")
    source = _node(node.args[0])
    name = t.graph.add("Unsqueeze", t.full(source), t.graph.constant([-1], np.int64))
    for dim in dims:  # type: ignore[union-attr]
        axis = int(str(dim)) % source.meta["val"].dim()
        if t.graph.opset >= 20:
            name = t.graph.add("DFT", name, "", t.graph.constant(axis, np.int64))
        else:
            name = t.graph.add("DFT", name, axis=axis)
    return Value(name=name)


@translates("real")
def _real(t: Translation, node: fx.Node) -> Value:
    source = _node(node.args[0])
    if not source.meta["val"].is_complex():
        return t.value(source)
    first = t.graph.constant(0, np.int64)
    return Value(name=t.graph.add("Gather", t.value(source).name, first, name=node.name, axis=-1))
