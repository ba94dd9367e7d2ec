"""What the tests share instead of capturing: a copy is what capture gives, with the model's own weights."""

from __future__ import annotations

import pytest
import torch

from octavo.graph.capture import export
from octavo.graph.capture.source import make_encoder
from tests import captures
from tests.graph import families


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_a_copy_is_what_capture_gives(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head = families.usual_head(family)
    first, second = families.network(family, head), families.network(family, head)
    with torch.no_grad():
        for parameter in second.parameters():
            parameter.add_(0.01)
    made = []
    for capture, network in ((captures.capture, first), (captures.capture, second), (export.capture, second)):
        monkeypatch.setattr("octavo.graph.capture.source.capture", capture)
        made.append(make_encoder(family, network, None, head))
    _, copied, anew = made
    batch = families.batch((2, 6))
    for name, output in anew(batch).items():
        assert torch.equal(copied(batch)[name], output)
        assert not torch.equal(made[0](batch)[name], output)
    assert str(copied.graph.graph) == str(anew.graph.graph)
    assert copied.activation_sites == anew.activation_sites
    assert {id(p) for p in copied.graph.parameters()} == {id(p) for p in anew.graph.parameters()}
    assert {id(p) for p in copied.graph.parameters()} <= {id(p) for p in second.parameters()}


def test_another_configuration_is_captured_anew() -> None:
    head = families.usual_head("bert")
    wide = make_encoder("bert", families.network("bert", head, intermediate_size=96), None, head)
    assert wide.graph.get_parameter("bert.encoder.layer.0.intermediate.dense.weight").shape[0] == 96
