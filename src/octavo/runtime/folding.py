"""Folding of constant factors: 1/√d of attention goes into a scale that is multiplied anyway."""

from __future__ import annotations

import math

from torch import fx

from octavo.graph.flow import CARRIER, operation
from octavo.graph.quantizer import Quantizer

_CARRIERS = CARRIER - {"to", "_to_copy", "type_as", "slice", "select", "split", "chunk", "unbind"}


def foldable_factors(module: fx.GraphModule) -> tuple[dict[fx.Node, float], dict[fx.Node, fx.Node]]:
    """Multiplications by a number that can be left out.

    Returns, for each node that takes a factor over (an activation quantizer, whose integers are dequantized with a larger
    or smaller scale, or a linear layer, whose weight's scale and bias are multiplied), that factor; and for each
    multiplication left out, the node that now stands for it.
    """
    factors: dict[fx.Node, float] = {}
    replaced: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        factor = _constant_factor(node)
        source = node.args[0] if node.args else None
        if factor is None or not isinstance(source, fx.Node):
            continue
        taker = _taker(module, source)
        if taker is not None:
            factors[taker] = factors.get(taker, 1.0) * factor
            replaced[node] = source
    return factors, replaced


def _constant_factor(node: fx.Node) -> float | None:
    if node.op != "call_function" or operation(node) not in ("mul", "div") or len(node.args) != 2:
        return None
    number = node.args[1]
    if not isinstance(number, int | float) or isinstance(number, bool) or not math.isfinite(number) or number <= 0:
        return None
    return float(number) if operation(node) == "mul" else 1.0 / number


def _taker(module: fx.GraphModule, node: fx.Node) -> fx.Node | None:
    """The quantizer or linear layer behind a chain in which every value is read once."""
    while len(node.users) == 1:
        name = operation(node)
        if node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), Quantizer):
            return node
        if name == "linear":
            return node
        if name in ("matmul", "bmm") or name in _CARRIERS or name == "dropout":
            first = node.args[0]
            if not isinstance(first, fx.Node):
                return None
            node = first
        else:
            return None
    return None
