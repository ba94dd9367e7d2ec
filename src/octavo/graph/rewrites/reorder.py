"""Reordering channels for free: where an elementwise function stands between a tensor and linear layers.

    GELU(W1 x + b1)[order] = GELU(W1[order] x + b1[order])

The hidden layer of an FFN has its channels in any order if the rows of the first weight are in that order; a
gated one if those of gate and value are, also where one linear layer makes both.
"""

from __future__ import annotations

import torch
from torch import Tensor, fx

from octavo.graph.rewrites.pieces import WeightCutter
from octavo.graph.sites.flow import SPLIT, operation

_ELEMENTWISE = frozenset(
    "gelu relu silu tanh sigmoid erf exp mul add sub div neg pow square hardtanh hardswish leaky_relu elu "
    "softplus mish dropout clone contiguous to alias detach".split()
)


def linear_sources(weights: WeightCutter, made: fx.Node, width: int) -> list[fx.Node]:
    """Return the linear layers whose rows order the channels of `made`, and of nothing else that is read.

    None are returned where there is more between them than elementwise operations.
    """
    inside: set[fx.Node] = set()
    sources: list[fx.Node] = []
    stack = [made]
    while stack:
        node = stack.pop()
        if node in inside:
            continue
        inside.add(node)
        if weights.is_plain_linear(node):
            sources.append(node)
            continue
        before = _channels_before(weights, node, width)
        if before is None:
            return []
        stack += before
    between = inside - {made}
    return sources if all(user in inside for node in between for user in node.users) else []


def _channels_before(weights: WeightCutter, node: fx.Node, width: int) -> list[fx.Node] | None:
    """Return the inputs of a node whose channels are in the order of its own; None where order matters."""
    name = operation(node)
    if name == "getitem":
        return node.all_input_nodes
    if name in SPLIT:
        return node.all_input_nodes if _cuts_evenly(weights, node, width) else None
    quantizer = weights.editor.quantizer_at(node)
    if name not in _ELEMENTWISE and (quantizer is None or not quantizer.spec.granularity.has_one_scale):
        return None
    before = []
    for source in node.all_input_nodes:
        value = source.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.dim() == 0 or value.shape[-1] == 1:
            continue  # the same for every channel
        if value.shape[-1] != width:
            return None
        before.append(source)
    return before


def _cuts_evenly(weights: WeightCutter, node: fx.Node, width: int) -> bool:
    """Whether a node cuts the rows of a linear layer into parts of this width."""
    (source,) = node.all_input_nodes[:1]
    parts = node.meta.get("val")
    return (
        weights.is_plain_linear(source)
        and isinstance(parts, list | tuple)
        and all(isinstance(part, torch.Tensor) and part.shape[-1] == width for part in parts)
    )


def repeated(order: Tensor, rows: int) -> Tensor:
    """Return the order of all rows of a linear layer that makes several tensors, each in this order."""
    return torch.cat([order + start for start in range(0, rows, len(order))])
