"""Traits of a model that its configuration and its graph tell: inputs, length, layers."""

from __future__ import annotations

import inspect
from typing import Any

from torch import fx, nn

from octavo.graph.sites.flow import Flow, operation

_LENGTH_WITHOUT_POSITIONS = 512


def inputs_of(network: nn.Module, config: Any) -> tuple[str, ...]:
    """What the graph takes: token types only where there is more than one."""
    accepted = inspect.signature(network.forward).parameters
    names = ["input_ids", "attention_mask"]
    if "token_type_ids" in accepted and (getattr(config, "type_vocab_size", 0) or 0) > 1:
        names.append("token_type_ids")
    return tuple(names)


def max_length_of(graph: fx.GraphModule, positions: int, tokenizer: Any) -> int:
    """Positions the model has; a table indexed by counting tokens (RoBERTa) loses `padding_idx + 1`."""
    limit = positions if positions > 1 else _LENGTH_WITHOUT_POSITIONS
    flow = Flow(graph)
    for node, kind in flow.working.items():
        if (
            kind == "embedding"
            and node.op == "call_function"
            and len(node.args) > 2
            and _counts_tokens(node.args[1])
        ):
            table, padding = node.args[0], int(str(node.args[2]))
            assert isinstance(table, fx.Node)
            limit = min(limit, int(flow.tensor(table).shape[0]) - padding - 1)
    known = int(getattr(tokenizer, "model_max_length", 0) or 0)
    return min(limit, known) if 1 < known < 10**6 else limit


def _counts_tokens(index: object) -> bool:
    """Whether an index is a running count of tokens (RoBERTa's positions)."""
    node = index
    while isinstance(node, fx.Node) and node.op == "call_function":
        if operation(node) == "cumsum":
            return True
        node = next(iter(node.all_input_nodes), None)
    return False


def layers_of(config: Any) -> int | None:
    """How many layers a configuration asks for; None where it does not say."""
    for name in ("num_hidden_layers", "num_layers", "n_layers", "n_layer", "encoder_layers"):
        count = getattr(config, name, None)
        if isinstance(count, int):
            return count
    return None
