"""A model run over batches stretch by stretch, for methods that change weights in the order of computation.

They stop at every layer, and what was computed before it is not computed again: between two stretches the
tensors that are still needed are kept for every batch, a hidden state or two. Weights are read when an
operation uses them, so that a weight changed at a stop counts from there on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from octavo.graph.encoder import Encoder

KEPT_BYTES = 2**29
"""What one relay keeps between stretches; batches beyond it run from their start every time."""

Values = dict[fx.Node, Any]


class Relay:
    """A run of one model over batches that can be stopped before any node.

    Arguments:
        encoder: the model; its weights and quantizers may change while the run is stopped.
        batches: without padding, if padding is not to count.
        kept_bytes: at most so many bytes are kept between stretches.
    """

    def __init__(
        self, encoder: Encoder, batches: Sequence[Mapping[str, Tensor]], kept_bytes: int = KEPT_BYTES
    ) -> None:
        self._encoder, self._batches, self._kept_bytes = encoder, batches, kept_bytes
        self._nodes = [node for node in encoder.graph.graph.nodes if node.op != "output"]
        self._position = {node.name: index for index, node in enumerate(self._nodes)}
        self._by_name = {node.name: node for node in self._nodes}
        self._last_used = _last_uses(self._nodes)
        self._reached = [0] * len(batches)
        self._values: list[Values | None] = [None] * len(batches)

    def position(self, node: str) -> int:
        """Return the place of a node in the order of computation."""
        return self._position[node]

    def read_by(self, nodes: Sequence[str]) -> Iterator[list[Tensor]]:
        """Yield, for every batch, the first argument of each of these nodes, (..., width).

        The run is stopped before the first of them. What a later one reads is computed with the weights of
        this moment and forgotten again, since the first may still be changed.
        """
        wanted = [self._by_name[name].args[0] for name in nodes]
        stop = min(self._position[name] for name in nodes)
        kept = 0
        for index in range(len(self._batches)):
            values = self._advance(index, stop)
            found = self._look_ahead(values, stop, [node for node in wanted if isinstance(node, fx.Node)])
            kept += _bytes(values)
            self._reached[index], self._values[index] = stop, values if kept <= self._kept_bytes else None
            yield found

    def weight_of(self, layer: str) -> Tensor:
        """Return the weight that a linear layer reads now, quantized if it is."""
        weight = self._by_name[layer].args[1]
        assert isinstance(weight, fx.Node) and _is_weight(weight), layer
        with torch.no_grad():
            found: Tensor = self._compute(weight, {})
        return found.detach()

    def _advance(self, index: int, stop: int) -> Values:
        """Return the values of a batch that are needed from `stop` on."""
        values = self._values[index]
        start = self._reached[index]
        if values is None or start > stop:
            values, start = self._begin(index), 0
        with torch.no_grad():
            for position in range(start, stop):
                self._step(values, position)
        return values

    def _begin(self, index: int) -> Values:
        inputs = (node for node in self._nodes if node.op == "placeholder")
        return dict(zip(inputs, self._encoder.arguments(self._batches[index]), strict=True))

    def _look_ahead(self, values: Values, stop: int, wanted: Sequence[fx.Node]) -> list[Tensor]:
        """Return wanted values, running on in copies where some are not there yet."""
        found = {node: self._compute(node, values) for node in wanted if _is_weight(node)}
        found |= {node: values[node] for node in wanted if node in values}
        missing = {self._position[node.name] for node in wanted if node not in found}
        if missing:
            values = {n: v.clone() if isinstance(v, Tensor) else v for n, v in values.items()}
            with torch.no_grad():
                for position in range(stop, 1 + max(missing)):
                    self._step(values, position)
                    if position in missing:  # a copy: operations that follow may overwrite it
                        found[self._nodes[position]] = values[self._nodes[position]].clone()
        return [found[node] for node in wanted]

    def _step(self, values: Values, position: int) -> None:
        """Compute a node, and forget what it was the last to read."""
        node = self._nodes[position]
        if node.op == "placeholder" or _is_weight(node):
            return
        values[node] = self._compute(node, values)
        for used in self._last_used[position]:
            values.pop(used, None)

    def _compute(self, node: fx.Node, values: Values) -> Any:
        def value(n: fx.Node) -> Any:
            return self._compute(n, values) if _is_weight(n) else values[n]

        if node.op == "get_attr":
            return _attribute(self._encoder.graph, str(node.target))
        arguments = fx.node.map_arg((node.args, node.kwargs), value)
        positional, named = arguments
        if node.op == "call_module":
            return self._encoder.graph.get_submodule(str(node.target))(*positional, **named)
        assert callable(node.target), node
        return node.target(*positional, **named)


def _is_weight(node: fx.Node) -> bool:
    """Whether a node is a parameter or its quantizer: read at its use, never kept."""
    if node.op == "call_module":
        return len(node.all_input_nodes) == 1 and node.all_input_nodes[0].op == "get_attr"
    return node.op == "get_attr"


def _last_uses(nodes: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """Return, for every position, the nodes that nothing after it reads; results stay."""
    last: dict[fx.Node, int] = {}
    for position, node in enumerate(nodes):
        last[node] = position
        for source in node.all_input_nodes:
            last[source] = position
    dead: list[list[fx.Node]] = [[] for _ in nodes]
    for node, position in last.items():
        if not any(user.op == "output" for user in node.users):
            dead[position].append(node)
    return dead


def _attribute(module: torch.nn.Module, path: str) -> Any:
    value: Any = module
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _bytes(values: Values) -> int:
    """Return what tensors take, views of one memory counted once."""
    memory = {}
    for value in values.values():
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            memory[storage.data_ptr()] = storage.nbytes()
    return sum(memory.values())
