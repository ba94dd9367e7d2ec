from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from octavo.errors import OctavoWarning
from octavo.graph import Encoder, QuantizedEncoder
from octavo.graph.batches import of_equal_length
from octavo.graph.rewrites.biases import add_biases
from octavo.graph.sites.flow import operation
from octavo.methods import load, quantize
from octavo.methods.context import Context
from octavo.methods.correction import biases
from octavo.methods.correction.biases import correct_biases, put_bias
from octavo.spec import AdaRound, BiasCorrection, Fold, Override, Recipe, TensorSpec
from octavo.spec.presets import recipe
from tests.graph import families

BATCHES = [families.batch((8, 12), padded=True, seed=seed) for seed in range(4)]
W4 = recipe("w4a32")
W8A8 = Recipe(
    name="w8a8",
    placement="linear-inputs",
    weights=TensorSpec(bits=5, symmetric=True),
    activations=TensorSpec(bits=5),
    overrides=(Override(roles=("norm_weight",), off=True),),
)
MEAN = BiasCorrection(robust=False)


def corrected(of: Recipe) -> Recipe:
    return replace(of, passes=(*of.passes, MEAN))


def linear_layers(model: Encoder) -> list[str]:
    return [node.name for node in model.graph.graph.nodes if operation(node) == "linear"]


def mean_outputs(model: Encoder) -> dict[str, Tensor]:
    """Return the mean output of every linear layer over all rows, by the interpreter of torch.fx."""
    rows: dict[str, list[Tensor]] = {}

    class Watching(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> object:
            result = super().run_node(n)
            if operation(n) == "linear":
                rows.setdefault(n.name, []).append(result.detach().double().reshape(-1, result.shape[-1]))
            return result

    with torch.no_grad():
        for batch in of_equal_length(BATCHES):
            Watching(model.graph).run(*model.arguments(batch))
    return {name: torch.cat(found).mean(0) for name, found in rows.items()}


@pytest.mark.parametrize("base", [W4, W8A8], ids=["weights alone", "weights and activations"])
@pytest.mark.parametrize("family", ["bert", "mpnet", "modernbert", "roberta-prelayernorm"])
def test_every_layer_keeps_its_mean_output(base: Recipe, family: str) -> None:
    """Also in ModernBERT, whose layers have no bias: they get one."""
    encoder = families.captured(family, "encoder")[1]
    model = quantize(encoder, corrected(base), BATCHES)
    wanted, found = mean_outputs(encoder), mean_outputs(model)
    plain = mean_outputs(quantize(encoder, base, BATCHES))
    errors = [
        max(float((means[name] - wanted[name]).abs().max()) for name in wanted) for means in (found, plain)
    ]
    assert errors[0] < 1e-4 and errors[0] < 0.01 * errors[1]


def test_a_few_tokens_do_not_move_the_median() -> None:
    """Errors of 100 at one token of a text: the mean takes 100 / 12 off all of them, the median nothing."""
    encoder = families.captured("bert", "encoder")[1]
    model = quantize(encoder, replace(W4, weights=TensorSpec(bits=16, symmetric=True)), BATCHES)
    first = linear_layers(encoder)[0]
    median, mean = (
        correct_biases(
            model.with_parts(graph=_disturbed(model, first)), encoder, BATCHES, BiasCorrection(robust=robust)
        )
        for robust in (True, False)
    )
    path = next(iter(mean))
    assert float(mean[path].abs().max()) > 1 and float(median[path].abs().max()) < 1e-2


@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_guarded_biases_stay_as_they_are_where_corrections_do_harm(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors taken the wrong way round do harm. BERT's layers have biases, ModernBERT's would get some."""
    encoder = families.captured(family, "encoder")[1]
    model = quantize(encoder, replace(W4, weights=TensorSpec(bits=6, symmetric=True)), BATCHES)
    real = biases.put_bias
    monkeypatch.setattr(biases, "put_bias", lambda graph, paths, error: real(graph, paths, -9 * error))
    before = {name: value.clone() for name, value in model.graph.named_parameters()}
    output = model(BATCHES[0])
    context = Context(encoder=encoder, calibration=BATCHES)
    guarded = biases.run(model, replace(MEAN, guarded=True), context)
    found = context.findings["bias-correction"]
    assert not found["kept"] and found["error"]["after"] > found["error"]["before"]
    after = dict(guarded.graph.named_parameters())
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(torch.equal(guarded(BATCHES[0])[name], value) for name, value in output.items())


def test_guarded_biases_are_corrected_where_that_helps() -> None:
    """A bias is off; the layers behind it take back what that does to their outputs on average."""
    encoder = families.captured("bert", "encoder")[1]
    model = quantize(encoder, replace(W4, weights=TensorSpec(bits=16, symmetric=True)), BATCHES)
    layer = [node for node in encoder.graph.graph.nodes if operation(node) == "linear"][-2]
    path = str(layer.args[2].target)
    put_bias(model.graph, [path], torch.linspace(-1, 1, len(model.graph.get_parameter(path))))
    model.float_model = encoder
    context = Context(encoder=encoder, calibration=BATCHES)
    biases.run(model, replace(MEAN, guarded=True), context)
    found = context.findings["bias-correction"]
    assert found["kept"] and found["error"]["after"] < 0.1 * found["error"]["before"]


def _disturbed(model: QuantizedEncoder, layer: str) -> torch.fx.GraphModule:
    """Return the graph with what a layer reads shifted by 100 where the token is the first of its text."""
    graph = torch.fx.GraphModule(model.graph, deepcopy(model.graph.graph))
    node = next(n for n in graph.graph.nodes if n.name == layer)
    with graph.graph.inserting_before(node):
        shifted = graph.graph.call_function(_shift_first, (node.args[0],))
    node.replace_input_with(node.args[0], shifted)
    graph.recompile()
    return graph


def _shift_first(x: Tensor) -> Tensor:
    shifted = x.clone()
    shifted[:, 0] += 100
    return shifted


def test_the_target_is_the_model_before_rounding_and_after_folding() -> None:
    encoder = families.captured("bert", "encoder")[1]
    base = replace(W8A8, passes=(Fold(roles=("ffn_input",)), AdaRound(iterations=10)))
    wanted, found = mean_outputs(encoder), mean_outputs(quantize(encoder, corrected(base), BATCHES))
    for name, mean in wanted.items():
        torch.testing.assert_close(found[name], mean, rtol=1e-3, atol=1e-4)


def test_layers_that_share_a_bias_share_its_correction() -> None:
    """ALBERT runs one layer several times: the mean over all of its runs is taken off."""
    encoder = families.captured("albert", "encoder")[1]
    model = quantize(encoder, W4, BATCHES)
    changes = correct_biases(model, encoder, BATCHES, MEAN)
    projection, query = list(changes)[:2]
    # when the query is corrected, the projection of the embeddings has been, and nothing else
    before = quantize(encoder, W4, BATCHES)
    put_bias(before.graph, [projection], changes[projection])
    layers = [n.name for n in encoder.graph.graph.nodes if operation(n) == "linear"]
    named = {n.name: str(n.args[2].target) for n in encoder.graph.graph.nodes if n.name in layers}
    readers = [name for name in layers if named[name] == query]
    assert len(readers) == 2
    means = [mean_outputs(each) for each in (before, encoder)]
    expected = sum(means[0][name] - means[1][name] for name in readers) / 2
    torch.testing.assert_close(changes[query], expected, rtol=1e-3, atol=1e-5)
    after = model.graph.get_parameter(query).detach()
    assert torch.equal(after, (before.graph.get_parameter(query).detach().double() - changes[query]).float())


@pytest.mark.parametrize("family", ["bert", "modernbert", "albert"])
def test_corrected_biases_are_saved_and_loaded(family: str, tmp_path: Path) -> None:
    encoder = families.captured(family, "encoder")[1]
    model = quantize(encoder, corrected(W8A8), BATCHES)
    loaded = load(model.save(tmp_path / "model"))
    assert isinstance(loaded, QuantizedEncoder) and loaded.passes == model.passes
    name = encoder.output_names[0]
    assert torch.equal(loaded(BATCHES[0])[name], model(BATCHES[0])[name])


def test_the_float_model_stays_as_it_is() -> None:
    encoder = families.captured("bert")[1]
    before = encoder(BATCHES[0])["logits"]
    model = quantize(encoder, corrected(W4), BATCHES)
    assert torch.equal(encoder(BATCHES[0])["logits"], before)
    assert model.float_model is None


def test_layers_that_have_a_bias_get_no_other() -> None:
    model = quantize(families.captured("bert", "encoder")[1], W4)
    assert add_biases(model) is model


def test_convolutions_are_told() -> None:
    encoder = families.captured("squeezebert")[1]
    with pytest.warns(OctavoWarning, match="bias-correction leaves .* layers as they are"):
        quantize(encoder, corrected(W4), BATCHES)
