"""Captures of the tests' models, each made once a process: exporting a tiny model takes a second.

What torch.export makes depends on the class, the configuration and the settings of a model, and not on its
weights. So another model of the same kind gets a copy of the first graph that holds its own parameters, as
capturing it would have given. The tests of capture itself do without (tests/graph/capture/conftest.py).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

import torch
from torch import Tensor, fx, nn

from octavo.graph.capture import export

_Places = dict[str, Tensor]
_made: dict[Hashable, tuple[fx.GraphModule, _Places]] = {}


def capture(
    model: nn.Module, inputs: Sequence[str], outputs: Sequence[str], max_length: int, name: str
) -> fx.GraphModule:
    """Return what `octavo.graph.capture.export.capture` does."""
    key = (_kind(model), tuple(inputs), tuple(outputs), max_length)
    if key not in _made:
        graph = export.capture(model, inputs, outputs, max_length, name)
        # without the weights, which a large model would keep in memory
        places: _Places = {path: _like(tensor) for path, tensor in _tensors(model)}
        _made[key] = deepcopy(graph, {id(tensor): places[path] for path, tensor in _tensors(model)}), places
        return graph
    graph, places = _made[key]
    return deepcopy(graph, {id(places[path]): tensor for path, tensor in _tensors(model)})


def _kind(model: nn.Module) -> Hashable:
    config: Any = model.config
    shapes = tuple((path, tuple(tensor.shape), tensor.dtype) for path, tensor in _tensors(model))
    # a test that changes the code of a class, or of one model, has a kind of its own
    code = (type(model), type(model).forward, *(type(module).__name__ for module in model.modules()))
    return code, config.to_json_string(use_diff=False), str(config._attn_implementation), shapes


def _tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every parameter and buffer, those that are shared once."""
    return chain(model.named_parameters(), model.named_buffers())


def _like(tensor: Tensor) -> Tensor:
    empty = torch.empty(0, dtype=tensor.dtype)
    return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty
