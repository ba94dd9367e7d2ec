"""Biases for linear layers that have none, zero at first, so that a correction has a place to go to."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import fx, nn

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.rewrites.editing import Editor, label
from octavo.graph.sites.flow import operation

_HOLDER = "corrected"


def bias_path(layer: fx.Node) -> str | None:
    """Return where the bias of a linear layer is, or would be added; None where its weight is computed.

    Layers that share a weight share the added bias.
    """
    bias = layer.args[2] if len(layer.args) > 2 else layer.kwargs.get("bias")
    if isinstance(bias, fx.Node):
        return str(bias.target) if bias.op == "get_attr" else None
    weight = layer.args[1]
    while isinstance(weight, fx.Node) and weight.op == "call_module":
        weight = weight.args[0]
    if not isinstance(weight, fx.Node) or weight.op != "get_attr":
        return None
    return f"{_HOLDER}.{label(str(weight.target))}.bias"


def add_biases(model: QuantizedEncoder, paths: Collection[str] | None = None) -> QuantizedEncoder:
    """Return the model with a bias of zeros at every linear layer that has none.

    Arguments:
        paths: only at these places (see `bias_path`); None for all.
    """
    wanted = [
        node
        for node in model.graph.graph.nodes
        if operation(node) == "linear" and _is_added(node) and (paths is None or bias_path(node) in paths)
    ]
    if not wanted:
        return model
    editor = Editor(model.graph, model.quantizers)
    layers = {node.name: node for node in editor.graph.nodes}
    added: dict[str, nn.Parameter] = {}
    for old in wanted:
        node, path = layers[old.name], bias_path(old)
        assert path is not None
        outputs = int(node.meta["val"].shape[-1])
        zeros = torch.zeros(outputs, dtype=node.meta["val"].dtype, device=model.device)
        value = added.setdefault(path, nn.Parameter(zeros, requires_grad=False))
        with editor.graph.inserting_before(node):
            node.args = (*node.args[:2], editor.tensor(path, value, node))
            node.kwargs = {}
    return model.with_parts(graph=editor.finish(), quantizers=editor.quantizers)


def _is_added(layer: fx.Node) -> bool:
    path = bias_path(layer)
    return path is not None and path.startswith(f"{_HOLDER}.")
