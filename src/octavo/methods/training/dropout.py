"""Dropout of a captured graph: capture sees a model in evaluation, where attention has none."""

from __future__ import annotations

from torch import fx, nn

from octavo.graph import Encoder


def set_dropout(encoder: Encoder, attention: float | None = None, hidden: float | None = None) -> None:
    """Set the dropout rates of a graph; None takes attention's from the configuration, leaves the rest."""
    if attention is None:
        attention = getattr(encoder.config, "attention_probs_dropout_prob", None)
        attention = getattr(encoder.config, "attention_dropout", 0.0) if attention is None else attention
    behind = _behind_attention(encoder)
    for name, module in encoder.graph.named_modules():
        if isinstance(module, nn.Dropout):
            if name in behind:
                module.p = float(attention or 0.0)
            elif hidden is not None:
                module.p = float(hidden)


def _behind_attention(encoder: Encoder) -> set[str]:
    """The dropout modules that read attention probabilities, quantized or not."""
    nodes = {node.name: node for node in encoder.graph.graph.nodes}
    starts = [nodes[site.targets[0]] for site in encoder.activation_sites if site.role == "attention_probs"]
    return {str(user.target) for start in starts for user in _readers(encoder.graph, start)}


def _readers(graph: fx.GraphModule, node: fx.Node) -> list[fx.Node]:
    found = []
    for user in node.users:
        if user.op != "call_module":
            continue
        if isinstance(graph.get_submodule(str(user.target)), nn.Dropout):
            found.append(user)
        else:  # a quantizer stands between
            found.extend(_readers(graph, user))
    return found
