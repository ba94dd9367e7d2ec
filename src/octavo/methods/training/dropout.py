"""Dropout of a captured graph: capture sees a model in evaluation, where attention has none."""

from __future__ import annotations

import warnings

from torch import fx, nn

from octavo.errors import OctavoWarning
from octavo.graph import Encoder
from octavo.graph.sites.flow import operation

# how configurations call the rate of attention
_RATES = ("attention_probs_dropout_prob", "attention_dropout", "dropout_rate")
# what may stand between the probabilities and their dropout and changes no value
_PASSING = ("to", "_to_copy", "contiguous", "clone")


def set_dropout(encoder: Encoder, attention: float | None = None, hidden: float | None = None) -> None:
    """Set the dropout rates of a graph; None takes attention's from the configuration, leaves the rest.

    A model whose attention has no dropout that could be found is warned of if a rate was wanted.
    """
    if attention is None:
        attention = next((rate for name in _RATES if (rate := _rate(encoder, name)) is not None), None)
    behind = attention_dropouts(encoder)
    for name, module in encoder.graph.named_modules():
        if isinstance(module, nn.Dropout):
            if name in behind:
                module.p = module.p if attention is None else float(attention)
            elif hidden is not None:
                module.p = float(hidden)
    if attention and not behind:
        warnings.warn(
            f"{encoder.name}: no dropout was found behind attention probabilities; "
            f"it trains without the attention dropout of {attention}",
            OctavoWarning,
            stacklevel=2,
        )


def attention_dropouts(encoder: Encoder) -> set[str]:
    """Return the dropout modules that read attention probabilities, quantized or not."""
    nodes = {node.name: node for node in encoder.graph.graph.nodes}
    starts = [nodes[site.targets[0]] for site in encoder.activation_sites if site.role == "attention_probs"]
    return {str(user.target) for start in starts for user in _readers(encoder.graph, start)}


def _rate(encoder: Encoder, name: str) -> float | None:
    rate: float | None = getattr(encoder.config, name, None)
    return rate


def _readers(graph: fx.GraphModule, node: fx.Node) -> list[fx.Node]:
    dropouts = []
    for user in node.users:
        if user.op == "call_module" and isinstance(graph.get_submodule(str(user.target)), nn.Dropout):
            dropouts.append(user)
        elif user.op == "call_module" or operation(user) in _PASSING:  # a quantizer, or a change of type
            dropouts.extend(_readers(graph, user))
    return dropouts
