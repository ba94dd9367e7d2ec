"""Light attention masks: what a graph computes from the mask, replaced where it is proven to be padding.

Captured graphs index, compare and expand a mask to (batch, 1, length, length). Most of the time all of that
equals `where(mask, keep, fill)` of shape (batch, 1, 1, length). Whether it does is proven from the operations
themselves, for every length at once: each node is one number everywhere, a count along one axis, or one
number where the mask keeps a token and another where it does not. What is none of these (a sliding window,
which compares two counts) is written out as captured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from octavo.graph.sites.flow import operation
from octavo.runtime.translate.context import Translation, Value

Number = bool | int | float


@dataclass(frozen=True, kw_only=True)
class Constant:
    """One number everywhere, whatever the sizes are."""

    number: Number


@dataclass(frozen=True, kw_only=True)
class Count:
    """0, 1, 2 … along one axis, which is counted from the last one, -1."""

    axis: int


@dataclass(frozen=True, kw_only=True)
class Padding:
    """One number where the mask keeps a token and another where it does not; masks hold 0 and 1.

    Arguments:
        rows: the axis along which the mask's rows, the texts, lie, counted from the last one, -1.
        tokens: the axis of its tokens.
    """

    rows: int
    tokens: int
    keep: Number
    fill: Number


Proven = Constant | Count | Padding

_ELEMENTWISE = frozenset(
    "add sub rsub mul div neg where masked_fill eq ne ge gt le lt __and__ __or__ logical_and logical_or "
    "bitwise_and bitwise_or logical_not bitwise_not minimum maximum clamp clamp_min clamp_max to _to_copy "
    "type_as float bool long".split()
)
_SAME = frozenset("alias clone contiguous detach lift_fresh_copy".split())
_BROADCAST = frozenset({"expand", "expand_as", "broadcast_to"})
_FILLED = {
    "zeros": 0, "new_zeros": 0, "zeros_like": 0, "ones": 1, "new_ones": 1, "ones_like": 1,
}  # fmt: skip
_FILLED_AT = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0}  # where the number stands


def light_masks(t: Translation) -> dict[fx.Node, Value]:
    """Return the nodes that end a mask's computation, each written as a light mask if proven to be one."""
    proven = prove(t.module)
    written: dict[fx.Node, Value] = {}
    for node, value in proven.items():
        if _is_light(node, value) and _ends(node, proven):
            assert isinstance(value, Padding)
            written[node] = _write(t, node, value.keep, value.fill)
    return written


def _is_light(node: fx.Node, value: Proven) -> bool:
    """Return whether a node is a padding mask (batch, 1, length or 1, length)."""
    return (
        isinstance(value, Padding) and node.meta["val"].dim() == 4 and (value.rows, value.tokens) == (-4, -1)
    )


def _ends(node: fx.Node, proven: dict[fx.Node, Proven]) -> bool:
    """Return whether all that is not proven reads a node elementwise, beside a tensor of full shape."""
    readers = [user for user in node.users if user not in proven]
    return bool(readers) and all(_broadcasts(user, node) for user in readers)


def _broadcasts(reader: fx.Node, mask: fx.Node) -> bool:
    if operation(reader) not in _ELEMENTWISE:
        return False
    wanted = list(map(str, reader.meta["val"].shape))
    others = [n.meta.get("val") for n in reader.all_input_nodes if n is not mask]
    return any(isinstance(value, Tensor) and list(map(str, value.shape)) == wanted for value in others)


# -- the proof -----------------------------------------------------------------------------------------------


def prove(module: fx.GraphModule) -> dict[fx.Node, Proven]:
    """Return what is proven of nodes that sizes, constants and the attention mask alone make."""
    proven: dict[fx.Node, Proven] = {}
    for node in module.graph.nodes:
        if not isinstance(node.meta.get("val"), Tensor):
            continue
        value = _prove(module, node, proven)
        if value is not None:
            proven[node] = value
    return proven


def _prove(module: fx.GraphModule, node: fx.Node, proven: dict[fx.Node, Proven]) -> Proven | None:
    if node.op == "placeholder":
        return Padding(rows=-2, tokens=-1, keep=1, fill=0) if node.target == "attention_mask" else None
    if node.op == "get_attr":
        return _stored(module, node)
    if node.op != "call_function":
        return None
    name = operation(node)
    if name == "arange":
        return _counted(node)
    if name in _FILLED or name in _FILLED_AT:
        number: Any = _FILLED[name] if name in _FILLED else node.args[_FILLED_AT[name]]
        return None if isinstance(number, fx.Node) else Constant(number=_cast(number, node))
    if not node.args or not isinstance(node.args[0], fx.Node) or node.args[0] not in proven:
        return _elementwise(node, proven) if name in _ELEMENTWISE else None
    source = proven[node.args[0]]
    if name in _SAME or name in _BROADCAST or (name == "slice" and _takes_all(node)):
        return source if _keeps_axes(node, source) else None
    if name in ("unsqueeze", "squeeze"):
        return _moved(node, source)
    if name == "index":
        return _indexed(node, source, proven)
    return _elementwise(node, proven) if name in _ELEMENTWISE else None


def _cast(number: Number, node: fx.Node) -> Number:
    cast: Number = torch.tensor(number, dtype=node.meta["val"].dtype).item()
    return cast


def _stored(module: fx.GraphModule, node: fx.Node) -> Constant | None:
    """Return the number that a buffer holds everywhere."""
    tensor: Any = module
    for part in str(node.target).split("."):
        tensor = getattr(tensor, part)
    if not isinstance(tensor, Tensor) or isinstance(tensor, torch.nn.Parameter) or tensor.numel() != 1:
        return None
    return Constant(number=tensor.item())


def _counted(node: fx.Node) -> Count | None:
    """Return the count of an arange that begins at 0 and has the step 1."""
    numbers = [a for a in node.args if isinstance(a, int | float | fx.Node)]
    return Count(axis=-1) if len(numbers) == 1 or (numbers[0] == 0 and numbers[2:] in ([], [1])) else None


def _takes_all(node: fx.Node) -> bool:
    given: list[Any] = [*node.args[1:], *(0, None, None, 1)[len(node.args) - 1 :]]
    _, start, end, step = given
    return start in (0, None) and step == 1 and (end is None or (isinstance(end, int) and end >= 2**62))


def _keeps_axes(node: fx.Node, value: Proven) -> bool:
    """Return whether the axes that a value counts along have the sizes they had; others may be spread."""
    axes = {Constant: (), Count: ("axis",), Padding: ("rows", "tokens")}[type(value)]
    before, after = node.args[0].meta["val"].shape, node.meta["val"].shape  # type: ignore[union-attr]
    return all(str(before[getattr(value, axis)]) == str(after[getattr(value, axis)]) for axis in axes)


def _moved(node: fx.Node, value: Proven) -> Proven | None:
    """Return a value with an axis of size 1 more, or less."""
    if isinstance(value, Constant):
        return value
    before, after = node.args[0].meta["val"].dim(), node.meta["val"].dim()  # type: ignore[union-attr]
    if abs(before - after) != 1 or len(node.args) < 2 or not isinstance(node.args[1], int):
        return None
    added = after > before
    axis = node.args[1] % max(before, after) - max(
        before, after
    )  # from the last one, where there is one more

    def move(old: int) -> int:
        if added:
            return old if old > axis else old - 1
        return old if old > axis else old + 1

    if isinstance(value, Count):
        return None if not added and value.axis == axis else Count(axis=move(value.axis))
    if not added and axis in (value.rows, value.tokens):
        return None
    return Padding(rows=move(value.rows), tokens=move(value.tokens), keep=value.keep, fill=value.fill)


def _indexed(node: fx.Node, value: Proven, proven: dict[fx.Node, Proven]) -> Proven | None:
    """Return mask[i, j] where i counts the rows along one axis and j the tokens along another one."""
    indices = [proven.get(index) if index is not None else None for index in node.args[1]]  # type: ignore[union-attr, arg-type]
    if not isinstance(value, Padding) or (value.rows, value.tokens) != (-2, -1) or len(indices) != 2:
        return None
    if node.args[0].meta["val"].dim() != 2:  # type: ignore[union-attr]
        return None
    first, second = indices
    if not isinstance(first, Count) or not isinstance(second, Count) or first.axis == second.axis:
        return None
    wanted = [str(node.meta["val"].shape[index.axis]) for index in (first, second)]
    if wanted != list(map(str, node.args[0].meta["val"].shape)):  # type: ignore[union-attr]
        return None
    return Padding(rows=first.axis, tokens=second.axis, keep=value.keep, fill=value.fill)


def _elementwise(node: fx.Node, proven: dict[fx.Node, Proven]) -> Proven | None:
    """Return what an operation makes of single numbers: its own result, computed on them."""
    tensors = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor)]
    if len(tensors) != len(node.all_input_nodes) or any(n not in proven for n in tensors):
        return None
    values = [proven[n] for n in tensors]
    if any(isinstance(value, Count) for value in values):
        return _compared(node, proven)
    masks = [value for value in values if isinstance(value, Padding)]
    if len({(mask.rows, mask.tokens) for mask in masks}) > 1:
        return None
    keep = _computed(node, proven, lambda mask: mask.keep)
    fill = _computed(node, proven, lambda mask: mask.fill)
    if keep is None or fill is None:
        return None
    if keep == fill:
        return Constant(number=keep)
    return Padding(rows=masks[0].rows, tokens=masks[0].tokens, keep=keep, fill=fill)


def _computed(
    node: fx.Node, proven: dict[fx.Node, Proven], pick: Callable[[Padding], Number]
) -> Number | None:
    """Return the result where every mask has the number that is picked of it."""

    def tensor(source: fx.Node) -> Tensor:
        value, like = proven[source], source.meta["val"]
        assert not isinstance(value, Count)
        number = value.number if isinstance(value, Constant) else pick(value)
        # of the same number of axes: torch lets numbers without any decide less about the result's type
        return torch.full((1,) * like.dim(), number, dtype=like.dtype)

    arguments, options = fx.node.map_arg((node.args, node.kwargs), tensor)
    if "device" in options:
        options = {**options, "device": torch.device("cpu")}
    numbers = [torch.device("cpu") if isinstance(a, torch.device) else a for a in arguments]
    result: Tensor = node.target(*numbers, **options)  # type: ignore[operator]
    number: Number = result.item()
    return number if result.dtype == node.meta["val"].dtype else None


def _compared(node: fx.Node, proven: dict[fx.Node, Proven]) -> Proven | None:
    """Return a count plus 0, the same count in another type, or a comparison that holds from 0 on."""
    name, (first, *rest) = operation(node), node.args
    if (
        not isinstance(first, fx.Node)
        or not isinstance(proven[first], Count)
        or len(node.all_input_nodes) != 1
    ):
        return None
    if name in ("add", "sub") and rest == [0]:
        return proven[first]
    if name in ("to", "_to_copy", "long") and node.meta["val"].dtype in (torch.int64, torch.int32):
        return proven[first]
    number = rest[0] if rest else None
    if not isinstance(number, int | float):
        return None
    holds = {"ge": number <= 0, "gt": number < 0, "ne": number < 0}.get(name, False)
    fails = {"lt": number <= 0, "le": number < 0, "eq": number < 0}.get(name, False)
    return Constant(number=holds) if holds or fails else None


# -- what is written instead ---------------------------------------------------------------------------------


def _write(t: Translation, node: fx.Node, keep: Any, fill: Any) -> Value:
    axes = t.graph.constant([1, 2], np.int64)
    mask = t.once("Cast", t.once("Unsqueeze", "attention_mask", axes), to=9)
    if node.meta["val"].dtype == torch.bool:
        return Value(name=mask if keep else t.once("Not", mask))
    dtype = node.meta["val"].dtype
    return Value(name=t.once("Where", mask, t.full(keep, dtype), t.full(fill, dtype)))
