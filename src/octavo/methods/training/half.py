"""Graphs whose linear layers multiply in bfloat16 while they train."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import fx

from octavo.numerics.half_linear import half_linear, multiplies_half


def in_half(module: fx.GraphModule) -> fx.GraphModule:
    """Return the module with linear layers that train in bfloat16, or itself where that would not be faster.

    Parameters and modules are shared.
    """
    if not multiplies_half():
        return module
    graph = deepcopy(module.graph)
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default):
        node.target = half_linear
    return fx.GraphModule(module, graph)
