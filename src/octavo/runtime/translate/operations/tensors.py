"""Operations that make, index or reduce tensors; most of them compute masks and positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from octavo.errors import ModelError
from octavo.graph.sites.flow import operation
from octavo.runtime.translate.context import Translation, Value
from octavo.runtime.translate.operations.table import translates


@translates("arange")
def _arange(t: Translation, node: fx.Node) -> Value:
    dtype = node.meta["val"].dtype
    numbers = [a for a in node.args if isinstance(a, int | float | fx.Node)]
    start, end, step = {1: (0, *numbers, 1), 2: (*numbers, 1), 3: tuple(numbers)}[len(numbers)]
    return Value(
        name=t.graph.add("Range", *(_scalar(t, v, dtype) for v in (start, end, step)), name=node.name)
    )


def _scalar(t: Translation, value: Any, dtype: torch.dtype) -> str:
    if not isinstance(value, fx.Node):
        return t.full(value, dtype)
    return t.once("Squeeze", t.full(value, dtype), t.graph.constant([0], np.int64))


@translates(
    "zeros", "ones", "full", "new_ones", "new_zeros", "full_like", "zeros_like", "ones_like", "new_full"
)
def _filled(t: Translation, node: fx.Node) -> Value:
    """Write a tensor of one number; 0-d tensors are constants."""
    name, dtype = operation(node), node.meta["val"].dtype
    if "full" in name:
        number = node.args[2] if name == "new_full" else node.args[1]
    else:
        number = 1 if "ones" in name else 0
    constant = t.full(number, dtype)
    shape = [*node.meta["val"].shape]
    return Value(name=t.graph.add("Expand", constant, t.shape(shape), name=node.name) if shape else constant)


@translates("cumsum")
def _cumsum(t: Translation, node: fx.Node) -> Value:
    axis = t.graph.constant(int(str(node.args[1])), np.int64)
    return Value(
        name=t.graph.add("CumSum", t.full(node.args[0], node.meta["val"].dtype), axis, name=node.name)
    )


@translates("gather")
def _gather(t: Translation, node: fx.Node) -> Value:
    names = [t.full(node.args[0]), t.full(node.args[2], torch.int64)]
    return Value(name=t.graph.add("GatherElements", *names, name=node.name, axis=int(str(node.args[1]))))


@translates("index_select")
def _index_select(t: Translation, node: fx.Node) -> Value:
    """Write channels in another order, which rows allow as well as stacks."""
    source, axis = node.args[0], int(str(node.args[1]))
    assert isinstance(source, fx.Node)
    flat = t.is_hidden_state(source) and t.value(source).flat and axis in (-1, 2)
    name = t.rows(source) if flat else t.full(source)
    order = t.full(node.args[2], torch.int64)
    picked = t.graph.add("Gather", name, order, name=node.name, axis=-1 if flat else axis)
    return Value(name=picked, flat=flat)


@translates("index")
def _index(t: Translation, node: fx.Node) -> Value:
    """Write x[i, j, …] with index tensors for the leading axes, broadcast against each other."""
    indices = list(node.args[1])  # type: ignore[arg-type]
    if any(index is None or index.meta["val"].dtype == torch.bool for index in indices):
        raise ModelError("indexing by truth values or by later axes has no ONNX translation here")
    if len(indices) == 1:
        return Value(
            name=t.graph.add("Gather", t.full(node.args[0]), t.full(indices[0], torch.int64), axis=0)
        )
    rest = node.args[0].meta["val"].dim() - len(indices)  # type: ignore[union-attr]
    sizes = [*node.meta["val"].shape]
    shape = t.shape(sizes[: len(sizes) - rest])
    last = t.graph.constant([-1], np.int64)
    spread = [t.graph.add("Expand", t.full(index, torch.int64), shape) for index in indices]
    stacked = t.graph.add("Concat", *(t.graph.add("Unsqueeze", name, last) for name in spread), axis=-1)
    return Value(name=t.graph.add("GatherND", t.full(node.args[0]), stacked, name=node.name))


@translates("mean", "sum")
def _reduce(t: Translation, node: fx.Node) -> Value:
    given = node.args[1] if len(node.args) > 1 else None
    axes = (
        [int(str(a)) for a in (given if isinstance(given, list | tuple) else [given])]
        if given is not None
        else []
    )
    keep = bool(node.args[2]) if len(node.args) > 2 else bool(node.kwargs.get("keepdim", False))
    dtype = node.meta["val"].dtype
    name = "ReduceMean" if operation(node) == "mean" else "ReduceSum"
    source = node.args[0]
    assert isinstance(source, fx.Node)
    flat = t.is_hidden_state(source) and t.value(source).flat and axes in ([-1], [2]) and keep
    inputs = [t.rows(source) if flat else t.full(source, dtype)]
    inputs += [t.graph.constant([-1] if flat else axes, np.int64)] if axes else []
    return Value(name=t.graph.add(name, *inputs, name=node.name, keepdims=int(keep)), flat=flat)


@translates("linalg_vector_norm")
def _vector_norm(t: Translation, node: fx.Node) -> Value:
    order: Any = node.args[1] if len(node.args) > 1 else 2
    axes: Any = node.args[2] if len(node.args) > 2 else None
    keep = bool(node.args[3]) if len(node.args) > 3 else False
    if order not in (1, 2) or axes is None:
        raise ModelError(
            f"a vector norm of order {order} has no ONNX translation here; export is not possible"
        )
    inputs = [t.full(node.args[0]), t.graph.constant([int(axis) for axis in axes], np.int64)]
    return Value(name=t.graph.add(f"ReduceL{int(order)}", *inputs, name=node.name, keepdims=int(keep)))


@translates("any", "all")
def _any(t: Translation, node: fx.Node) -> Value:
    value = node.meta["val"]
    assert isinstance(value, Tensor)
    raise ModelError(f"{node.target} has no ONNX translation here; export is not possible")
