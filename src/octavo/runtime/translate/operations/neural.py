"""Operations with weights, matrix products, norms and softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import fx

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


@translates("conv1d")
def _conv1d(t: Translation, node: fx.Node) -> Value:
    """Write a convolution; SqueezeBERT's linear layers are grouped ones of width 1."""
    arguments = (*node.args, *(None, [1], [0], [1], 1)[len(node.args) - 2 :])
    source, weight, bias, stride, padding, dilation, groups = arguments
    inputs = [t.full(source), t.full(weight), *([t.full(bias)] if bias is not None else [])]
    attributes = {"strides": list(stride), "pads": [*padding, *padding], "dilations": list(dilation)}  # type: ignore[arg-type, misc]
    return Value(name=t.graph.add("Conv", *inputs, name=node.name, group=groups, **attributes))
