from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from octavo.errors import CalibrationError, OctavoWarning, OutputError, SpecError
from octavo.graph import Encoder, QuantizedEncoder, attach, fix_weights
from octavo.methods import load, quantize
from octavo.methods.rounding.gptq import round_weights
from octavo.methods.rounding.moments import input_moments
from octavo.spec import Gptq, Granularity, Mse, Override, PerChannel, PerGroup, PerTensor, Recipe, TensorSpec
from tests.graph import families

SPEC = TensorSpec(bits=4, symmetric=True, estimator=Mse())
NEAREST = Recipe(name="w4", weights=SPEC, activations=None)
RECIPE = replace(NEAREST, name="w4-gptq", passes=(Gptq(),))
LINEAR = (Override(roles=("embedding_weight", "norm_weight"), off=True),)
BATCHES = [families.batch((12, 12), padded=True, seed=seed) for seed in range(4)]


@pytest.fixture(scope="module")
def bert() -> Encoder:
    return families.captured("bert")[1]


def attached(encoder: Encoder, recipe: Recipe = RECIPE) -> QuantizedEncoder:
    model = attach(encoder, recipe)
    fix_weights(model)
    return model


def output_error(model: QuantizedEncoder, encoder: Encoder) -> float:
    """Return the mean squared error of the first output on data that rounding did not see."""
    batch, name = families.batch((8, 16), seed=9), encoder.output_names[0]
    return float((model(batch)[name] - encoder(batch)[name]).square().mean())


@pytest.mark.parametrize(
    "granularity", [PerTensor(), PerChannel(), PerGroup(groups=4, at_most=True)], ids=str
)
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_outputs_change_less_than_to_nearest(bits: int, granularity: Granularity) -> None:
    encoder = families.captured("bert", "encoder")[1]
    nearest = replace(NEAREST, weights=replace(SPEC, bits=bits, granularity=granularity), overrides=LINEAR)
    rounded = quantize(encoder, replace(nearest, passes=(Gptq(),)), BATCHES)
    assert output_error(rounded, encoder) < output_error(quantize(encoder, nearest), encoder)


@pytest.mark.parametrize("options", [Gptq(), Gptq(order=False), Gptq(asymmetric=True, sweeps=2)], ids=str)
def test_no_layer_is_worse_than_to_nearest(bert: Encoder, options: Gptq) -> None:
    losses = round_weights(attached(bert), BATCHES, options)
    assert len(losses) == sum(site.role == "linear_weight" for site in bert.weight_sites)
    assert all(chosen <= nearest for nearest, chosen in losses.values())
    assert sum(chosen < nearest for nearest, chosen in losses.values()) > len(losses) / 2


def test_saved_integers_are_the_chosen_ones(bert: Encoder, tmp_path: Path) -> None:
    model = quantize(bert, RECIPE, BATCHES)
    batch = families.batch((3, 9))
    model.save(tmp_path / "saved")
    assert torch.equal(load(tmp_path / "saved")(batch)["logits"], model(batch)["logits"])
    assert not torch.equal(quantize(bert, NEAREST)(batch)["logits"], model(batch)["logits"])


ROWS = replace(NEAREST, weights=replace(SPEC, symmetric=False, granularity=PerChannel()), overrides=LINEAR)
WEIGHTED = replace(ROWS, name="weighted", passes=(Gptq(weighted=True, relative=True, shrinkage=0.5),))


def test_weighted_ranges_are_saved_and_resumed(tmp_path: Path) -> None:
    encoder = families.captured("bert", "encoder")[1]
    model = quantize(encoder, WEIGHTED, BATCHES, work=tmp_path / "work")
    plain = quantize(encoder, ROWS)
    name = "layers.0.ffn_output.weight"
    assert not torch.equal(model.quantizers[name].scale, plain.quantizers[name].scale)
    batch, output = families.batch((3, 9)), encoder.output_names[0]
    again = quantize(encoder, WEIGHTED, BATCHES, work=tmp_path / "work")
    model.save(tmp_path / "saved")
    for other in (again, load(tmp_path / "saved")):
        assert torch.equal(other(batch)[output], model(batch)[output])
    assert output_error(model, encoder) < output_error(plain, encoder)


def test_ranges_that_were_not_searched_stay() -> None:
    """A recipe that says min-max means it."""
    encoder = families.captured("bert", "encoder")[1]
    recipe = replace(WEIGHTED, weights=TensorSpec(bits=8, symmetric=True, granularity=PerChannel()))
    model, plain = quantize(encoder, recipe, BATCHES), quantize(encoder, replace(recipe, passes=()))
    for name, quantizer in plain.quantizers.items():
        assert torch.equal(model.quantizers[name].scale, quantizer.scale)


def test_tokens_count_alike_however_large_they_are() -> None:
    """One text that is a thousand times larger at a layer's input than all others does not decide alone."""

    class Fixed:
        def __init__(self, *batches: torch.Tensor) -> None:
            self._batches = batches

        def read_by(self, nodes: Sequence[str]) -> Iterator[list[torch.Tensor]]:
            return ([batch] for batch in self._batches)

    small, large = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1000.0]])
    relay = Fixed(small, large)
    found = input_moments(relay, relay, ["layer"], relative=True)  # type: ignore[arg-type]
    assert torch.allclose(
        found.own, torch.eye(2, dtype=torch.float64)
    )  # each row over its root mean square, halved
    assert input_moments(relay, relay, ["layer"]).own[1, 1] == 500_000  # type: ignore[arg-type]


def test_the_float_model_stays_as_it_is(bert: Encoder) -> None:
    before = bert(BATCHES[0])["logits"]
    quantize(bert, RECIPE, BATCHES)
    assert torch.equal(bert(BATCHES[0])["logits"], before)


@pytest.mark.parametrize("family", ["albert", "mobilebert", "modernbert"])
def test_other_families_round_too(family: str) -> None:
    """ALBERT's layers share their weights: the moments are those of all that read them."""
    encoder = families.captured(family, "encoder")[1]
    nearest = replace(NEAREST, overrides=LINEAR)
    rounded = quantize(encoder, replace(nearest, passes=(Gptq(),)), BATCHES)
    assert output_error(rounded, encoder) < output_error(quantize(encoder, nearest), encoder)


def test_too_few_texts_say_how_many_it_takes(bert: Encoder) -> None:
    message = (
        "2 texts give pooler.weight 2 rows for its 32 inputs, and 13 more weights .* about 32 such texts"
    )
    with pytest.warns(OctavoWarning, match=message):
        quantize(bert, RECIPE, [families.batch((2, 10))])
    encoder = families.captured("bert", "encoder")[1]
    message = r"8 texts give layers.\d.ffn_output.weight 48 rows for its 64 inputs.* about 11 such texts"
    with pytest.warns(OctavoWarning, match=message):
        quantize(encoder, RECIPE, [families.batch((8, 6))])


def test_no_data_is_an_error(bert: Encoder) -> None:
    with pytest.raises(CalibrationError, match="'w4-gptq' rounds weights with GPTQ; give calibration texts"):
        quantize(bert, RECIPE)
    with pytest.raises(CalibrationError, match="rounds weights with GPTQ; give it texts"):
        round_weights(attached(bert), [], Gptq())


def test_a_recipe_without_linear_weights_is_an_error(bert: Encoder) -> None:
    off = replace(RECIPE, overrides=(Override(roles=("linear_weight",), off=True),))
    with pytest.raises(SpecError, match="rounds with GPTQ but quantizes no linear layer"):
        quantize(bert, off, BATCHES)


def test_weights_of_other_layers_are_named_and_left_to_nearest() -> None:
    encoder = families.captured("squeezebert")[1]
    with pytest.warns(OctavoWarning, match="GPTQ rounds .* to nearest: something else than a linear layer"):
        quantize(encoder, RECIPE, BATCHES)


def test_an_interrupted_run_goes_on_and_other_settings_are_refused(bert: Encoder, tmp_path: Path) -> None:
    class Stopped(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise Stopped

    with pytest.raises(Stopped):
        quantize(bert, RECIPE, BATCHES, work=tmp_path / "work", progress=stop)
    whole, resumed = quantize(bert, RECIPE, BATCHES), quantize(bert, RECIPE, BATCHES, work=tmp_path / "work")
    for site in whole.weight_sites:
        assert torch.equal(whole.parameter(site), resumed.parameter(site))
    with pytest.raises(OutputError, match="an interrupted run of GPTQ with another gptq"):
        quantize(bert, replace(RECIPE, passes=(Gptq(order=False),)), BATCHES, work=tmp_path / "work")


def test_correlations_that_few_texts_show_are_not_relied_on(bert: Encoder) -> None:
    """At full shrinkage every weight rounds on its own: to nearest."""
    recipe = replace(RECIPE, overrides=LINEAR, passes=(Gptq(shrinkage=1.0),))
    alone, nearest = quantize(bert, recipe, BATCHES), quantize(bert, replace(recipe, passes=()))
    assert torch.equal(alone(BATCHES[0])["logits"], nearest(BATCHES[0])["logits"])


SHARED = replace(RECIPE, name="shared", passes=(Gptq(only_shared=True),))


def test_only_weights_that_depths_share_are_rounded_where_that_is_asked_for() -> None:
    encoder = families.captured("albert", "encoder")[1]
    nearest, model = attached(encoder, NEAREST), attached(encoder, SHARED)
    losses = round_weights(model, BATCHES, Gptq(only_shared=True))
    linear = {site.name for site in nearest.weight_sites if site.role == "linear_weight"}
    assert set(losses) == linear - {"embeddings.projection.weight"}
    assert all(chosen < before for before, chosen in losses.values())
    changed = {
        site.name
        for site in nearest.weight_sites
        if not torch.equal(nearest.parameter(site), model.parameter(site))
    }
    assert changed == set(losses)


def test_without_shared_weights_nothing_is_done_and_no_text_is_read() -> None:
    encoder = families.captured("bert", "encoder")[1]
    model, nearest = quantize(encoder, SHARED, []), quantize(encoder, NEAREST)
    for site in nearest.weight_sites:
        assert torch.equal(model.parameter(site), nearest.parameter(site))
