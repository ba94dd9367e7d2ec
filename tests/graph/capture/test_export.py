from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from octavo.errors import CaptureError, DataError
from octavo.graph import Encoder, attach
from octavo.graph.capture.export import capture, move
from octavo.methods import quantize
from octavo.spec import Recipe, TensorSpec
from tests.graph import families

RECIPE = Recipe(name="w8", weights=TensorSpec(symmetric=True), activations=None)


class Branching(nn.Module):
    """A model that looks at its data to decide what to compute."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4)

    def forward(self, input_ids: Tensor, return_dict: bool = True) -> BaseModelOutput:
        hidden = self.table(input_ids)
        return BaseModelOutput(last_hidden_state=hidden if hidden.sum() > 0 else -hidden)


def test_a_model_that_cannot_be_captured_is_named_with_the_reason() -> None:
    with pytest.raises(
        CaptureError, match=r"^branching: torch\.export cannot capture this model.*data-dependent"
    ):
        capture(Branching(), ["input_ids"], ["last_hidden_state"], 16, "branching")


def test_capturing_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    families.fresh("mobilebert", "encoder")  # whose first attempt fails
    with pytest.raises(CaptureError):
        capture(Branching(), ["input_ids"], ["last_hidden_state"], 16, "branching")
    assert capfd.readouterr() == ("", "")


def test_parameters_are_shared_with_the_model_and_keep_their_names() -> None:
    network, encoder = families.captured("bert")
    own = dict(network.named_parameters())
    for name, parameter in encoder.graph.named_parameters():
        assert parameter is own[name]


def test_dropout_follows_train_and_eval() -> None:
    encoder = families.fresh("bert")
    arguments = encoder.arguments(families.batch((2, 9)))
    encoder.graph.train()
    assert not torch.equal(encoder.graph(*arguments)[0], encoder.graph(*arguments)[0])
    encoder.graph.eval()
    assert torch.equal(encoder.graph(*arguments)[0], encoder.graph(*arguments)[0])


def test_gradients_equal_those_of_the_model() -> None:
    network, encoder = families.captured("bert")
    batch = families.batch((3, 7))
    weight = "bert.encoder.layer.0.output.dense.weight"
    (expected,) = torch.autograd.grad(network(**batch).logits.sum(), [network.get_parameter(weight)])
    (found,) = torch.autograd.grad(
        encoder.graph(*encoder.arguments(batch))[0].sum(), [network.get_parameter(weight)]
    )
    assert torch.allclose(found, expected, atol=1e-6)


def test_training_a_quantized_model_leaves_dropout_of_the_float_one_off(bert: Encoder) -> None:
    attach(bert, RECIPE).graph.train()
    assert not any(module.training for module in bert.graph.modules())


def test_moving_a_graph_leaves_those_that_share_its_parameters(bert: Encoder) -> None:
    before = {name: parameter.device for name, parameter in bert.graph.named_parameters()}
    model = attach(bert, RECIPE)
    move(model.graph, torch.device("meta"))
    assert all(parameter.is_meta for parameter in model.graph.parameters())
    assert {name: parameter.device for name, parameter in bert.graph.named_parameters()} == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports torch.jit
def test_a_quantized_graph_compiles(bert: Encoder) -> None:
    recipe = Recipe(name="w8a8", weights=TensorSpec(symmetric=True), activations=TensorSpec())
    batch = families.batch((3, 16), padded=True)
    model = quantize(bert, recipe, [batch])
    with torch.no_grad():
        compiled = torch.compile(model.graph)(*model.arguments(batch))
    # fused kernels round differently in the last bit, which may move a value by one step of its grid
    assert torch.allclose(compiled[0], model(batch)["logits"], atol=2e-2)


# -- conditions of the model's own code ----------------------------------------------------------------------


class Filled(nn.Module):
    """A model that writes into zeros before a layer reads them."""

    def __init__(self, fills: bool) -> None:
        super().__init__()
        self.table, self.layer, self.fills = nn.Embedding(10, 4), nn.Linear(4, 4), fills

    def forward(self, input_ids: Tensor, return_dict: bool = True) -> BaseModelOutput:
        hidden = self.table(input_ids)
        result = torch.zeros_like(hidden)
        if self.fills:
            result.copy_(hidden.tanh())
        return BaseModelOutput(last_hidden_state=self.layer(result) + hidden)


def test_zeros_that_are_filled_are_no_stand_in() -> None:
    capture(Filled(True), ["input_ids"], ["last_hidden_state"], 16, "filled")
    with pytest.raises(
        CaptureError, match=r"^empty: the model computes a constant \(zeros_like\), where its"
    ):
        capture(Filled(False), ["input_ids"], ["last_hidden_state"], 16, "empty")


@pytest.mark.filterwarnings("ignore:.* layers were found:octavo.OctavoWarning")  # the decoder's as well
def test_what_a_model_refuses_its_graph_refuses() -> None:
    """mT5's classifier reads the last end token of each text, and mixes texts where some have more."""
    network, encoder = families.captured("mt5", "sequence-classification")
    end = encoder.config.eos_token_id
    good = {"input_ids": torch.tensor([[7, 8, 9, end], [9, 8, 7, end]])}
    assert torch.allclose(encoder(good)["logits"], network(**good)["logits"], atol=1e-6)
    bad = {"input_ids": torch.tensor([[7, 8, end, end], [9, 8, 7, 6]])}
    with pytest.raises(ValueError, match="the same number of <eos> tokens"):
        network(**bad)
    message = (
        r"^tiny mt5: the model's own code refuses these texts in one batch, since "
        r"`torch\.unique_consecutive.* == 1` in modeling_mt5, line \d+ does not hold; run each in a batch"
    )
    with pytest.raises(DataError, match=message):
        encoder(bad)
