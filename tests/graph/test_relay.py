from __future__ import annotations

import pytest
import torch
from torch import Tensor

from octavo.graph import Encoder
from octavo.graph.batches import of_equal_length
from octavo.graph.relay import Relay
from octavo.graph.sites.flow import operation
from tests.graph import families

BATCHES = of_equal_length([families.batch((6, 12), padded=True, seed=seed) for seed in range(3)])


def linear_layers(encoder: Encoder) -> list[str]:
    return [node.name for node in encoder.graph.graph.nodes if operation(node) == "linear"]


def read_at_once(encoder: Encoder, layers: list[str]) -> list[list[Tensor]]:
    """Return what every linear layer reads, by the interpreter of torch.fx."""
    found = []
    for batch in BATCHES:
        seen: dict[str, Tensor] = {}

        class Watching(torch.fx.Interpreter):
            def run_node(self, n: torch.fx.Node, seen: dict[str, Tensor] = seen) -> object:
                if n.name in layers:
                    seen[n.name] = self.env[n.args[0]].clone()  # type: ignore[index]
                return super().run_node(n)

        with torch.no_grad():
            Watching(encoder.graph, garbage_collect_values=False).run(*encoder.arguments(batch))
        found.append([seen[name] for name in layers])
    return found


@pytest.mark.parametrize("kept_bytes", [2**29, 6000, 0], ids=["all kept", "some kept", "none kept"])
@pytest.mark.parametrize("family", ["bert", "albert", "modernbert", "deberta-v2", "mobilebert"])
def test_layer_by_layer_it_reads_what_the_whole_run_reads(family: str, kept_bytes: int) -> None:
    encoder = families.captured(family)[1]
    layers = linear_layers(encoder)
    expected = read_at_once(encoder, layers)
    relay = Relay(encoder, BATCHES, kept_bytes)
    for place, layer in enumerate(layers):
        for number, (found,) in enumerate(relay.read_by([layer])):
            assert torch.equal(found, expected[number][place])


def test_layers_further_on_are_read_without_running_past_the_first() -> None:
    encoder = families.captured("bert")[1]
    layers = linear_layers(encoder)
    expected = read_at_once(encoder, layers)
    relay = Relay(encoder, BATCHES)
    for _ in range(2):  # the second time from what was kept
        for number, found in enumerate(relay.read_by([layers[2], layers[7], layers[-1]])):
            assert all(torch.equal(a, expected[number][b]) for a, b in zip(found, (2, 7, -1), strict=True))


def test_a_weight_changed_at_a_stop_counts_from_there_on() -> None:
    encoder = families.captured("bert")[1]
    layers = linear_layers(encoder)
    relay = Relay(encoder, BATCHES)
    node = next(n for n in encoder.graph.graph.nodes if n.name == layers[3])
    weight = encoder.graph.get_parameter(str(node.args[1].target))
    before = list(relay.read_by([layers[3]]))
    original = weight.detach().clone()
    try:
        with torch.no_grad():
            weight.mul_(2)
        expected = read_at_once(encoder, [layers[5]])
        assert all(torch.equal(a, b) for (a,), (b,) in zip(relay.read_by([layers[5]]), expected, strict=True))
    finally:
        with torch.no_grad():
            weight.copy_(original)
    # going back starts anew
    assert all(torch.equal(a, b) for (a,), (b,) in zip(relay.read_by([layers[3]]), before, strict=True))


def test_every_operation_runs_once_for_every_batch() -> None:
    encoder = families.captured("bert")[1]
    layers = linear_layers(encoder)
    calls: list[str] = []

    class Counting(Relay):
        def _step(self, values: dict[torch.fx.Node, object], position: int) -> None:
            calls.append(self._nodes[position].name)
            super()._step(values, position)

    relay = Counting(encoder, BATCHES)
    for layer in layers:
        list(relay.read_by([layer]))
    assert calls and all(calls.count(name) == len(BATCHES) for name in set(calls))
