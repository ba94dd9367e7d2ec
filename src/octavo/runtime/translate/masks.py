"""Light attention masks: what a graph computes from the mask, replaced where it is a plain padding mask.

Captured graphs index, compare and expand a mask to (batch, 1, length, length). Most of the time all of that
equals `where(mask, keep, fill)` of shape (batch, 1, 1, length). Whether it does is found by running the
captured operations on masks of several shapes and comparing; a mask of another kind (a sliding window, say)
is written out as captured.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, fx

from octavo.runtime.translate.context import Translation, Value

_SHAPES = ((1, 4), (3, 7), (2, 9))


def light_masks(t: Translation) -> dict[fx.Node, Value]:
    """Return the nodes that end a mask's computation, each written as a light mask if it equals one."""
    module = t.module
    masks = [n for n in module.graph.nodes if n.op == "placeholder" and n.target == "attention_mask"]
    if not masks:
        return {}
    cone = _cone(module, masks[0])
    ends = [
        n
        for n in module.graph.nodes
        if n in cone and n is not masks[0] and any(u not in cone for u in n.users)
    ]
    written: dict[fx.Node, Value] = {}
    for node in ends:
        values = _light_values(module, node)
        if values is not None:
            written[node] = _write(t, node, *values)
    return written


def _cone(module: fx.GraphModule, mask: fx.Node) -> set[fx.Node]:
    """Return nodes made from the mask, sizes and constants alone, and from neither tokens nor weights."""
    tainted = {n for n in module.graph.nodes if n.op in ("placeholder", "call_module") and n is not mask}
    cone = {mask}
    for node in module.graph.nodes:
        tensors = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), Tensor)]
        if node.op != "call_function" or not isinstance(node.meta.get("val"), Tensor):
            continue
        if any(n in tainted or (n.op == "get_attr" and n.meta["val"].is_floating_point()) for n in tensors):
            tainted.add(node)
        elif any(n in cone for n in tensors):
            cone.add(node)
    return cone


def _light_values(module: fx.GraphModule, node: fx.Node) -> tuple[Any, Any] | None:
    """Return what kept and what masked tokens are given if the node is a padding mask, otherwise None."""
    shape = node.meta["val"].shape
    if len(shape) != 4:
        return None
    values: tuple[Any, Any] | None = None
    for batch, length in _SHAPES:
        mask = _sample_mask(batch, length)
        result = _evaluate(module, node, mask)
        kept = mask.bool()[:, None, None, :].expand_as(result)
        if kept.all() or not kept.any():
            continue
        pair = (result[kept].flatten()[0].item(), result[~kept].flatten()[0].item())
        values = values or pair
        keep, fill = (torch.tensor(value, dtype=result.dtype) for value in pair)
        if values != pair or not torch.equal(result, torch.where(kept, keep, fill)):
            return None
    return values


def _sample_mask(batch: int, length: int) -> Tensor:
    """Return a mask with padding on the right and with holes; every row keeps its first token."""
    generator = torch.Generator().manual_seed(batch * 100 + length)
    mask = torch.randint(0, 2, (batch, length), generator=generator)
    mask[0, length // 2 :] = 0
    mask[:, 0], mask[-1, -1] = 1, 0
    return mask


def _evaluate(module: fx.GraphModule, node: fx.Node, mask: Tensor) -> Tensor:
    """Compute one node for a mask, all token ids being ones."""
    results: dict[fx.Node, Any] = {}
    needed = _ancestors(node)
    for current in module.graph.nodes:
        if current not in needed:
            continue
        if current.op == "placeholder":
            results[current] = mask if current.target == "attention_mask" else torch.ones_like(mask)
        elif current.op == "get_attr":
            results[current] = module.get_buffer(str(current.target)).cpu()
        else:
            arguments, options = fx.node.map_arg((current.args, current.kwargs), results.__getitem__)
            results[current] = current.target(*arguments, **options)
    value = results[node]
    assert isinstance(value, Tensor)
    return value


def _ancestors(node: fx.Node) -> set[fx.Node]:
    ancestors: set[fx.Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current not in ancestors:
            ancestors.add(current)
            stack.extend(current.all_input_nodes)
    return ancestors


def _write(t: Translation, node: fx.Node, keep: Any, fill: Any) -> Value:
    axes = t.graph.constant([1, 2], np.int64)
    mask = t.once("Cast", t.once("Unsqueeze", "attention_mask", axes), to=9)
    if node.meta["val"].dtype == torch.bool:
        return Value(name=mask if keep else t.once("Not", mask))
    dtype = node.meta["val"].dtype
    return Value(name=t.once("Where", mask, t.full(keep, dtype), t.full(fill, dtype)))
