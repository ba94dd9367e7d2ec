"""What AdaRound needs to know of a layer's inputs: two second moments, summed over batches as they pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from octavo.graph import Encoder


@dataclass(frozen=True, eq=False)
class Moments:
    """Over the rows of a layer's input, each (inputs, inputs) in float64.

    own: mean of x_hat x_hat'; shift: mean of (x_hat - x) x_hat'; x_hat is the quantized, x the float
    model's.
    """

    own: Tensor
    shift: Tensor
    rows: int


def input_moments(
    model: Encoder, reference: Encoder, nodes: Sequence[str], batches: Iterable[Mapping[str, Tensor]]
) -> Moments:
    """Moments of what the linear layers `nodes` (names in both graphs) read, their rows taken together."""
    quantized, float_ = (part_of(graph, read_by(graph, nodes)) for graph in (model.graph, reference.graph))
    own = shift = None
    rows = 0
    with torch.no_grad():
        for batch in batches:
            pairs = zip(quantized(*model.arguments(batch)), float_(*reference.arguments(batch)), strict=True)
            for x_hat, x in pairs:
                x_hat, x = x_hat.reshape(-1, x_hat.shape[-1]), x.reshape(-1, x.shape[-1])
                rows += len(x)
                # float32 products of one batch, float64 sums over batches
                products = (x_hat.T @ x_hat).double(), ((x_hat - x).T @ x_hat).double()
                own = products[0] if own is None else own.add_(products[0])
                shift = products[1] if shift is None else shift.add_(products[1])
    assert own is not None and shift is not None
    return Moments(own / rows, shift / rows, rows)


def read_by(graph: fx.GraphModule, nodes: Sequence[str]) -> list[str]:
    """Names of the nodes that the linear layers `nodes` read."""
    readers = {node.name: node for node in graph.graph.nodes}
    return [str(readers[name].args[0]) for name in nodes]


def part_of(graph: fx.GraphModule, nodes: Sequence[str]) -> fx.GraphModule:
    """The part of a graph that computes the named nodes, as a tuple; parameters are shared."""
    wanted = [node for node in graph.graph.nodes if node.name in nodes]
    needed: set[fx.Node] = set()
    while wanted:
        node = wanted.pop()
        if node not in needed:
            needed.add(node)
            wanted.extend(node.all_input_nodes)
    part = fx.Graph()
    copies: dict[str, fx.Node] = {}
    for node in graph.graph.nodes:
        if node in needed or node.op == "placeholder":
            copies[node.name] = part.node_copy(node, lambda n: copies[n.name])
    part.output(tuple(copies[name] for name in nodes))
    return fx.GraphModule(graph, part)
