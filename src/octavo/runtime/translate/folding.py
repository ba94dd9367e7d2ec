"""Folding of constant factors: 1/√d of attention goes into scales that are multiplied anyway."""

from __future__ import annotations

import math

from torch import fx

from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.sites.flow import CARRIER, operation
from octavo.runtime.translate.weights import takes_factor

_CARRIERS = CARRIER - {"to", "_to_copy", "type_as", "slice", "select", "split", "chunk", "unbind"}


def foldable_factors(module: fx.GraphModule) -> tuple[dict[fx.Node, float], dict[fx.Node, fx.Node]]:
    """Find multiplications by a number that can be left out.

    Returns, for each node that takes a factor over (a linear layer, whose weight's scale and bias are
    multiplied, and the quantizers on the way from it, whose scales are), that factor; and for each
    multiplication left out, the node that now stands for it.
    """
    factors: dict[fx.Node, float] = {}
    replaced: dict[fx.Node, fx.Node] = {}
    for node in module.graph.nodes:
        factor = _constant_factor(node)
        source = node.args[0] if node.args else None
        if factor is None or not isinstance(source, fx.Node):
            continue
        takers = _takers(module, source)
        for taker in takers:
            factors[taker] = factors.get(taker, 1.0) * factor
        if takers:
            replaced[node] = source
    return factors, replaced


def _constant_factor(node: fx.Node) -> float | None:
    if node.op != "call_function" or operation(node) not in ("mul", "div") or len(node.args) != 2:
        return None
    number = node.args[1]
    if (
        not isinstance(number, int | float)
        or isinstance(number, bool)
        or not math.isfinite(number)
        or number <= 0
    ):
        return None
    return float(number) if operation(node) == "mul" else 1.0 / number


def _takers(module: fx.GraphModule, node: fx.Node) -> list[fx.Node]:
    """Return a linear layer and the quantizers behind it, along a chain in which every value is read once.

    None are returned where the layer cannot take a factor over: its weight has other readers.
    """
    quantizers: list[fx.Node] = []
    while len(node.users) == 1:
        name = operation(node)
        if name == "linear":
            return [*quantizers, node] if takes_factor(module, node) else []
        if node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), Quantizer):
            quantizers.append(node)
        elif name not in _CARRIERS | {"matmul", "bmm", "dropout"}:
            return []
        first = node.args[0]
        if not isinstance(first, fx.Node):
            return []
        node = first
    return []
