"""What an error in each embedding dimension of a site does to whatever reads the site.

A linear layer with the matrix W turns an error e into W e. With errors of different dimensions uncorrelated,
the squared error of its output is the sum over j of |W[:, j]|² e_j². A norm scales its input by its weight g,
dimension by dimension, before others read it: behind one, the importance of j is g_j² times that of its
result. Other readers (sums, products of two activations) treat all dimensions alike and count nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, fx

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.sites.flow import CARRIER, operation

_NORMS = ("layer_norm", "rms_norm")


def weigh_channels(model: QuantizedEncoder) -> None:
    """Tell the quantizers whose specs weigh errors what every dimension of theirs counts."""
    calls = {str(node.target): node for node in model.graph.graph.nodes if node.op == "call_module"}
    for name, quantizer in model.quantizers.items():
        if getattr(quantizer.spec.estimator, "weighted", False) and quantizer.site.width is not None:
            call = calls[f"quantizers.{name.replace('.', '_')}"]
            found = channel_importance(model.graph, call, quantizer.site.width)
            index = quantizer.index if quantizer.axis == quantizer.site.channel_axis else None
            fits = quantizer.axis is None or (index is not None and len(index) == quantizer.site.width)
            quantizer.weigh(found if fits else None)


def channel_importance(graph: fx.GraphModule, node: fx.Node, width: int) -> Tensor | None:
    """Return what dimensions count to those that read a node, (width,); None where all count the same."""
    total: Tensor | None = None
    for reader in _readers(node):
        found = _importance(graph, reader, node, width)
        if found is not None:
            total = found if total is None else total + found
    return total


def _importance(graph: fx.GraphModule, reader: fx.Node, node: fx.Node, width: int) -> Tensor | None:
    name = operation(reader)
    if name == "linear":
        weight = _parameter(graph, reader.args[1])
        if weight is not None and weight.shape[-1] == width:
            return weight.square().sum(dim=0)
    if name in _NORMS and len(reader.args) > 2:
        gain = _parameter(graph, reader.args[2])
        if gain is not None and gain.shape == (width,):
            behind = channel_importance(graph, reader, width)
            return gain.square() if behind is None else gain.square() * behind
    return None


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """Yield what reads a node, past carriers and quantizers."""
    for user in node.users:
        if operation(user) in CARRIER or user.op == "call_module":
            yield from _readers(user)
        else:
            yield user


def _parameter(graph: fx.GraphModule, given: object) -> Tensor | None:
    """Return the float parameter behind a weight and its quantizer; None where the weight is computed."""
    node = given
    while isinstance(node, fx.Node) and node.op == "call_module":
        node = node.args[0]
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        return None
    found = dict(graph.named_parameters(remove_duplicate=False)).get(str(node.target))
    return None if found is None else found.detach().double()
