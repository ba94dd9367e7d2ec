"""What rounding needs to know of a layer's inputs: two second moments, summed over batches as they pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, fx

from octavo.graph.relay import Relay


@dataclass(frozen=True, eq=False)
class Moments:
    """Over the rows of a layer's input, each (inputs, inputs) in float64.

    own: mean of x_hat x_hat'; shift: mean of (x_hat - x) x_hat'; x_hat is the quantized, x the float
    model's.
    """

    own: Tensor
    shift: Tensor
    rows: int

    def shrunk(self, share: float) -> Moments:
        """Take a share of all that is not on the diagonals back.

        What few texts show to be correlated need not be so in others, and rounding that relies on it fails
        there; on the diagonals alone every weight rounds on its own.
        """
        if share == 0:
            return self
        return Moments(_shrunk(self.own, share), _shrunk(self.shift, share), self.rows)


def input_moments(quantized: Relay, float_: Relay, nodes: Sequence[str], relative: bool = False) -> Moments:
    """Return the moments of what the linear layers `nodes` (in both graphs) read, their rows together.

    `relative` divides every row by its root mean square in the float model, so that all count alike.
    """
    own = shift = None
    rows = 0
    for pairs in zip(quantized.read_by(nodes), float_.read_by(nodes), strict=True):
        for x_hat, x in zip(*pairs, strict=True):
            x_hat, x = (each.detach().reshape(-1, each.shape[-1]).float() for each in (x_hat, x))
            rows += len(x)
            if relative:
                size = x.square().mean(1, keepdim=True).sqrt_()
                size[size == 0] = 1.0
                x_hat, x = x_hat / size, x / size
            # float32 products of one batch, float64 sums over batches
            products = (x_hat.T @ x_hat).double(), ((x_hat - x).T @ x_hat).double()
            own = products[0] if own is None else own.add_(products[0])
            shift = products[1] if shift is None else shift.add_(products[1])
    assert own is not None and shift is not None
    return Moments(own / rows, shift / rows, rows)


def _shrunk(moment: Tensor, share: float) -> Tensor:
    result = moment * (1 - share)
    result.diagonal().copy_(moment.diagonal())
    return result


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
