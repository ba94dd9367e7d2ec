from __future__ import annotations

import pytest
import torch

from octavo.graph import QuantizedEncoder, State
from octavo.graph.quantizers.switch import switched_off
from octavo.methods import quantize
from octavo.spec.presets import recipe
from tests.graph import families

BATCH = families.batch((3, 12))


@pytest.fixture(scope="module")
def model() -> QuantizedEncoder:
    return quantize(families.captured("bert")[1], recipe("w8a8"), [BATCH])


def test_what_is_switched_off_passes_and_then_goes_on_as_before(model: QuantizedEncoder) -> None:
    inputs = BATCH
    quantized = model(inputs)["logits"]
    with switched_off(model.quantizers.values()):
        assert {q.state for q in model.quantizers.values()} == {State.OFF}
        assert torch.equal(model(inputs)["logits"], families.captured("bert")[1](inputs)["logits"])
    assert {q.state for q in model.quantizers.values()} == {State.FIX}
    assert torch.equal(model(inputs)["logits"], quantized)


def test_an_error_inside_leaves_every_quantizer_as_it_was(model: QuantizedEncoder) -> None:
    with pytest.raises(ZeroDivisionError), switched_off(model.quantizers.values()):
        1 / 0  # noqa: B018 - raising is the test
    assert {q.state for q in model.quantizers.values()} == {State.FIX}


def test_a_state_cannot_be_assigned_from_outside(model: QuantizedEncoder) -> None:
    with pytest.raises(AttributeError):
        next(iter(model.quantizers.values())).state = State.OFF  # type: ignore[misc]
