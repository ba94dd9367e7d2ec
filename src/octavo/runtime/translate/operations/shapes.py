"""Operations that move numbers without changing them; batch and length stay symbols."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from octavo.errors import ModelError
from octavo.graph.sites.flow import operation
from octavo.runtime.translate.context import Translation, Value
from octavo.runtime.translate.operations.table import translates

_END = 2**62  # torch writes "to the end" as 2**63 - 1; runtimes accept anything beyond the end


def _source(node: fx.Node) -> fx.Node:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return source


def _carry(t: Translation, node: fx.Node, operator: str, *inputs: str, **attributes: Any) -> Value:
    """Apply an operation that moves numbers to a value in its own shape."""
    source = _source(node)
    value = t.unflatten(t.value(source), source)
    return replace(value, name=t.graph.add(operator, value.name, *inputs, name=node.name, **attributes))


@translates("view", "reshape", "_unsafe_view", "flatten", "reshape_as", "unflatten", "view_as")
def _reshape(t: Translation, node: fx.Node) -> Value:
    """Reshape, by a constant shape wherever batch and length stay where they are."""
    source = _source(node)
    value = t.value(source)
    old, new = list(source.meta["val"].shape), list(node.meta["val"].shape)
    if t.is_hidden_state(node) and _joins_heads(old, new):
        name = t.graph.add("Reshape", value.name, t.graph.constant([-1, new[-1]], np.int64), name=node.name)
        return replace(value, name=name, flat=True)
    if value.flat:
        return replace(
            value, name=t.graph.add("Reshape", value.name, t.shape(new), name=node.name), flat=False
        )
    constant = _constant_shape(old, new)
    shape = t.graph.constant(constant, np.int64) if constant is not None else t.shape(new)
    return replace(value, name=t.graph.add("Reshape", value.name, shape, name=node.name))


def _joins_heads(old: Sequence[Any], new: Sequence[Any]) -> bool:
    """Return whether (batch, length, heads, width) becomes (batch, length, heads · width), flat at once."""
    return (
        len(old) == 4
        and all(isinstance(size, int) for size in old[2:])
        and list(map(str, old[:2])) == list(map(str, new[:2]))
    )


def _constant_shape(old: Sequence[Any], new: Sequence[Any]) -> list[int] | None:
    """Return `new` with 0 (size of the same axis before) and one -1, or None where that does not suffice."""
    shape = []
    for axis, size in enumerate(new):
        if isinstance(size, int):
            shape.append(int(size))
        elif axis < len(old) and str(old[axis]) == str(size):
            shape.append(0)
        else:
            shape.append(-1)
    return shape if shape.count(-1) <= 1 else None


@translates("transpose", "t")
def _transpose(t: Translation, node: fx.Node) -> Value:
    rank = node.meta["val"].dim()
    first, second = (int(str(axis)) % rank for axis in (node.args[1:3] or (0, 1)))
    order = list(range(rank))
    order[first], order[second] = order[second], order[first]
    return _carry(t, node, "Transpose", perm=order)


@translates("permute")
def _permute(t: Translation, node: fx.Node) -> Value:
    rank = node.meta["val"].dim()
    return _carry(t, node, "Transpose", perm=[int(axis) % rank for axis in node.args[1]])  # type: ignore[union-attr, arg-type]


@translates("unsqueeze")
def _unsqueeze(t: Translation, node: fx.Node) -> Value:
    axis = int(str(node.args[1])) % node.meta["val"].dim()
    return _carry(t, node, "Unsqueeze", t.graph.constant([axis], np.int64))


@translates("squeeze")
def _squeeze(t: Translation, node: fx.Node) -> Value:
    if len(node.args) < 2:
        raise ModelError("squeeze without an axis depends on sizes; export is not possible")
    given = node.args[1] if isinstance(node.args[1], list | tuple) else [node.args[1]]
    shape = _source(node).meta["val"].shape
    axes = [int(str(axis)) % len(shape) for axis in given]
    axes = [axis for axis in axes if isinstance(shape[axis], int) and shape[axis] == 1]
    return _carry(t, node, "Squeeze", t.graph.constant(axes, np.int64)) if axes else t.value(_source(node))


@translates("expand", "expand_as", "broadcast_to")
def _expand(t: Translation, node: fx.Node) -> Value:
    shape = [*node.meta["val"].shape]
    if list(map(str, _source(node).meta["val"].shape)) == list(map(str, shape)):
        return t.value(_source(node))
    return _carry(t, node, "Expand", t.shape(shape))


@translates("repeat")
def _repeat(t: Translation, node: fx.Node) -> Value:
    source, counts = _source(node), list(node.args[1])  # type: ignore[arg-type]
    missing = len(counts) - source.meta["val"].dim()
    value = t.unflatten(t.value(source), source)
    name = value.name
    if missing:
        name = t.graph.add("Unsqueeze", name, t.graph.constant(list(range(missing)), np.int64))
    return replace(value, name=t.graph.add("Tile", name, t.shape(counts), name=node.name))


@translates("repeat_interleave")
def _repeat_interleave(t: Translation, node: fx.Node) -> Value:
    """Write every entry along an axis some times in a row: a new axis behind it, spread and joined to it."""
    source, count = _source(node), node.args[1]
    given = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim")
    if not isinstance(count, int) or not isinstance(given, int):
        raise ModelError(f"{node.target} by counts that vary has no ONNX translation here")
    rank = source.meta["val"].dim()
    axis = given % rank
    apart = t.graph.add("Unsqueeze", t.full(source), t.graph.constant([axis + 1], np.int64))
    counts = [1] * (rank + 1)
    counts[axis + 1] = count
    spread = t.graph.add("Tile", apart, t.graph.constant(counts, np.int64))
    return Value(name=t.graph.add("Reshape", spread, t.shape([*node.meta["val"].shape]), name=node.name))


@translates("slice")
def _slice(t: Translation, node: fx.Node) -> Value:
    given: list[Any] = [*node.args[1:], *(0, None, None, 1)[len(node.args) - 1 :]]
    axis, start, end, step = given
    size = _source(node).meta["val"].shape[int(str(axis))]
    if start in (0, None) and step == 1 and (end is None or (isinstance(end, int) and end >= _END)):
        return t.value(_source(node))
    if isinstance(end, fx.Node) and str(end.meta["val"]) == str(size) and start in (0, None) and step == 1:
        return t.value(_source(node))
    if _counts_up(t, node, axis, start, end, step):
        counted = t.once("Range", t.full(0, torch.int64), _scalar(t, end), t.full(1, torch.int64))
        return Value(name=t.once("Unsqueeze", counted, t.graph.constant([0], np.int64)))
    stop = _END if end is None or (isinstance(end, int) and end > _END) else end
    bounds = [t.size(v) for v in (start or 0, stop, axis, step)]
    return _carry(t, node, "Slice", *bounds)


def _counts_up(t: Translation, node: fx.Node, axis: Any, start: Any, end: Any, step: Any) -> bool:
    """Return whether a slice takes 0, 1, 2 … from a table of positions (1, n), which need not be stored."""
    source = _source(node)
    if source.op != "get_attr" or (axis, start, step) != (1, 0, 1) or not isinstance(end, fx.Node):
        return False
    table = t.tensor(source)
    return (
        table is not None
        and table.dim() == 2
        and torch.equal(table.cpu(), torch.arange(table.shape[1])[None])
    )


@translates("select")
def _select(t: Translation, node: fx.Node) -> Value:
    axis, index = node.args[1:3]
    name = t.graph.constant(index, np.int64) if isinstance(index, int) else _scalar(t, index)
    return _carry(t, node, "Gather", name, axis=int(str(axis)))


def _scalar(t: Translation, size: Any) -> str:
    return t.once("Squeeze", t.size(size), t.graph.constant([0], np.int64))


@translates("cat", "stack")
def _join(t: Translation, node: fx.Node) -> Value:
    parts, dtype = node.args[0], node.meta["val"].dtype
    axis = int(str(node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)))
    # torch skips parts of shape (0,), whatever the others' rank is
    kept: list[Any] = [part for part in parts if list(part.meta["val"].shape) != [0]]  # type: ignore[union-attr]
    if operation(node) == "cat" and len(kept) == 1:
        return t.value(kept[0])
    names = [t.full(part, dtype) for part in kept]
    if operation(node) == "stack":
        axes = t.graph.constant([axis], np.int64)
        names = [t.graph.add("Unsqueeze", name, axes) for name in names]
    return Value(name=t.graph.add("Concat", *names, name=node.name, axis=axis))


@translates("split", "chunk", "split_with_sizes", "unbind")
def _split(t: Translation, node: fx.Node) -> list[Value]:
    """Split a tensor along an axis of fixed size; its parts are read by `getitem`."""
    source, parts = _source(node), node.meta["val"]
    given = node.args[1] if operation(node) == "unbind" else (node.args[2] if len(node.args) > 2 else 0)
    axis = int(str(given)) % source.meta["val"].dim()
    value = t.unflatten(t.value(source), source)
    sizes = [1 if operation(node) == "unbind" else part.shape[axis] for part in parts]
    if not all(isinstance(size, int) for size in sizes):
        raise ModelError(f"{node.target} splits an axis that varies; export is not possible")
    lengths = t.graph.constant(sizes, np.int64)
    names = t.graph.node("Split", [value.name, lengths], node.name, outputs=len(sizes), axis=axis)
    if operation(node) == "unbind":
        names = [t.graph.add("Squeeze", name, t.graph.constant([axis], np.int64)) for name in names]
    return [replace(value, name=name) for name in names]


@translates("getitem")
def _getitem(t: Translation, node: fx.Node) -> Value:
    parts = t.values[_source(node)]
    assert isinstance(parts, list)
    return parts[int(str(node.args[1]))]


@translates("pad", "constant_pad_nd")
def _pad(t: Translation, node: fx.Node) -> Value:
    """Write pads, which torch counts from the last axis, (before, after) each, and ONNX by side."""
    pads = [int(str(p)) for p in node.args[1]]  # type: ignore[union-attr]
    mode = node.args[2] if len(node.args) > 2 and isinstance(node.args[2], str) else "constant"
    if mode != "constant":
        raise ModelError(f"padding by {mode!r} has no ONNX translation here; export is not possible")
    rank, dtype = node.meta["val"].dim(), node.meta["val"].dtype
    before, after = [0] * rank, [0] * rank
    for back in range(len(pads) // 2):
        axis = rank - 1 - back
        before[axis], after[axis] = pads[2 * back], pads[2 * back + 1]
    given = [a for a in (*node.args[2:], node.kwargs.get("value")) if isinstance(a, int | float)]
    fill = t.full(given[0] if given else 0, dtype)
    return Value(
        name=t.graph.add("Pad", t.full(node.args[0]), t.graph.constant(before + after, np.int64), fill)
    )


@translates("sym_size")
def _sym_size(t: Translation, node: fx.Node) -> Value:
    symbol = str(node.meta["val"])
    if symbol in (t.batch, t.length):
        return Value(name=t.size(node))
    axis = int(str(node.args[1]))
    return Value(name=t.once("Shape", t.full(_source(node)), start=axis, end=axis + 1))


@translates("item")
def _item(t: Translation, node: fx.Node) -> Value:
    return Value(name=t.once("Reshape", t.full(_source(node)), t.graph.constant([1], np.int64)))


@translates("scalar_tensor")
def _scalar_tensor(t: Translation, node: fx.Node) -> Value:
    dtype: torch.dtype = node.meta["val"].dtype
    value = node.args[0]
    if isinstance(value, fx.Node) and not isinstance(value.meta["val"], Tensor):
        return Value(name=t.once("Squeeze", t.full(value, dtype), t.graph.constant([0], np.int64)))
    return Value(name=t.full(value, dtype))
