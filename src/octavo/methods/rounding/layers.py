"""Which linear layers read a quantized weight, grouped by what they read and in the order of computation."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from torch import fx

from octavo.errors import OctavoWarning, SpecError
from octavo.graph import QuantizedEncoder, Site
from octavo.graph.sites.flow import operation


@dataclass(frozen=True, eq=False)
class Layer:
    """Weights whose linear layers (names of nodes) read the same tensors, such as query, key and value."""

    nodes: tuple[str, ...]
    sites: list[Site]

    @property
    def is_shared(self) -> bool:
        """Whether each of the weights is read by several layers, as where depths share parameters."""
        return len(self.nodes) > 1


def find_layers(model: QuantizedEncoder, method: str) -> list[Layer]:
    """Return the quantized linear weights in the order of computation, grouped by what their layers read.

    A weight that something other than a linear layer reads is named in a warning; `method` is who asks.
    """
    found, left = _found(model)
    if not found:
        raise SpecError(f"recipe {model.recipe.name!r} rounds with {method} but quantizes no linear layer")
    if left:
        message = f"{method} rounds {', '.join(left)} to nearest: something else than a linear layer reads it"
        warnings.warn(message, OctavoWarning, stacklevel=4)
    return found


def find_shared_layers(model: QuantizedEncoder) -> list[Layer]:
    """Return the quantized linear weights that several layers read; most models have none."""
    return [layer for layer in _found(model)[0] if layer.is_shared]


def _found(model: QuantizedEncoder) -> tuple[list[Layer], list[str]]:
    """Return the layers, and the weights that something other than linear layers reads."""
    position = {node: index for index, node in enumerate(model.graph.graph.nodes)}
    found: dict[tuple[fx.Node, ...], Layer] = {}
    left: list[str] = []
    for site in model.weight_sites:
        if site.name not in model.quantizers or site.role != "linear_weight":
            continue
        readers = sorted(_readers(model.graph, site), key=position.__getitem__)
        inputs = tuple(node.args[0] for node in readers if operation(node) == "linear")
        if len(inputs) < len(readers) or not inputs:
            left.append(site.name)
            continue
        key = tuple(node for node in inputs if isinstance(node, fx.Node))
        found.setdefault(key, Layer(tuple(node.name for node in readers), [])).sites.append(site)
    first = {node.name: index for node, index in position.items()}
    return sorted(found.values(), key=lambda layer: first[layer.nodes[0]]), left


def _readers(graph: fx.GraphModule, site: Site) -> list[fx.Node]:
    """Return the operations that read the quantized weight."""
    attributes = [node for node in graph.graph.nodes if node.op == "get_attr" and node.target in site.targets]
    return [reader for node in attributes for quantizer in node.users for reader in quantizer.users]
