"""Traits of a model that its configuration and its graph tell: inputs, length, layers."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import Tensor, fx, nn

from octavo.graph.sites.flow import Flow, operation

_LENGTH_WITHOUT_POSITIONS = 512


def with_own_settings(network: nn.Module) -> nn.Module:
    """Return a network that shares all tensors with another and nothing else, to be run in its place.

    Some change their settings when they run: BigBird turns to full attention for good when it meets a short
    text, and what is captured then would not be what it was.
    """
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    return copy.deepcopy(network, shared)


def inputs_of(network: nn.Module, config: Any, tokenizer: Any = None) -> tuple[str, ...]:
    """What the graph takes: token types only where there is more than one.

    A model that makes token types of its own when none are given (BigBird's for question answering) keeps
    doing so, unless its tokenizer gives them.
    """
    accepted = inspect.signature(network.forward).parameters
    names = ("input_ids", "attention_mask")
    if "token_type_ids" not in accepted or (getattr(config, "type_vocab_size", 0) or 0) <= 1:
        return names
    given = "token_type_ids" in getattr(tokenizer, "model_input_names", ())
    return (*names, "token_type_ids") if given or not _makes_token_types(network) else names


def _makes_token_types(network: nn.Module) -> bool:
    """Return whether results without token types differ from those with zeros."""
    network = with_own_settings(network)
    ids = torch.ones(1, 9, dtype=torch.long)
    batch = {"input_ids": ids, "attention_mask": ids}
    try:
        with torch.no_grad():
            without = network(**batch, return_dict=True)
            zeros = network(**batch, token_type_ids=torch.zeros_like(ids), return_dict=True)
    except Exception:  # of many types; capture says which operation it was
        return False
    pairs = [(found, zeros[name]) for name, found in without.items() if isinstance(found, Tensor)]
    return not all(torch.allclose(found, other, equal_nan=True) for found, other in pairs)


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
