"""Taps: the graph of an encoder with tensors inside it among its results, parameters and modules shared."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from torch import fx

from octavo.errors import ModelError
from octavo.graph.encoder import Encoder
from octavo.graph.sites.site import Site


def tapped(encoder: Encoder, sites: Sequence[Site], *, alone: bool = False) -> fx.GraphModule:
    """Return the graph with these activations as further results, as all that reads them sees them.

    Arguments:
        alone: the activations are the only results, and what they do not need is not computed.
    """
    graph = deepcopy(encoder.graph.graph)
    nodes = {node.name: node for node in graph.nodes}
    (output,) = (node for node in graph.nodes if node.op == "output")
    results = () if alone else tuple(output.args[0])
    output.args = ((*results, *(_as_read(encoder, nodes, site) for site in sites)),)
    module = fx.GraphModule(encoder.graph, graph)
    if not alone:
        return module
    module.graph.eliminate_dead_code()
    return fx.GraphModule(module, module.graph)  # with the parameters that are still read


def layer_ends(encoder: Encoder) -> list[Site]:
    """Return the last tensor (batch, length, width) of every layer, in order."""
    last = {
        site.layer: site
        for site in encoder.activation_sites
        if site.layer is not None and site.shape[:2] == ("batch", "length") and len(site.shape) == 3
    }
    return [last[layer] for layer in sorted(last)]


def _as_read(encoder: Encoder, nodes: dict[str, fx.Node], site: Site) -> fx.Node:
    """Return a site's node, or its quantizer where nothing else reads the node."""
    node = nodes.get(site.targets[0])
    if node is None:
        raise ModelError(f"{encoder.name}: a pass has cut {site.name} into pieces; it cannot be looked at")
    readers = list(node.users)
    if (
        len(readers) == 1
        and readers[0].op == "call_module"
        and str(readers[0].target).startswith("quantizers.")
    ):
        return readers[0]
    return node
