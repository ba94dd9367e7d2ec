from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import octavo
from octavo.errors import CalibrationError, OctavoWarning, SpecError
from octavo.graph import Encoder, QuantizedEncoder, attach
from octavo.graph.rewrites.reach import spillable
from octavo.graph.rewrites.spill import spill
from octavo.methods import load
from octavo.numerics.spill import smallest_range
from octavo.spec import AllMinMax, Override, PerChannel, PerEmbedding, Recipe, Spill, TensorSpec
from tests.graph import families

SPILL = Spill(roles=("ffn_hidden",), share=0.5)
BATCHES = [families.batch((3, 12), seed=seed) for seed in range(3)]
RECIPE = Recipe(
    name="spilled",
    placement="linear-inputs",
    weights=TensorSpec(symmetric=True, granularity=PerChannel()),
    activations=TensorSpec(estimator=AllMinMax()),
    overrides=(Override(roles=("norm_weight",), off=True, optional=True),),
    passes=(SPILL,),
)


def hidden(model: QuantizedEncoder) -> list[str]:
    return [site.name for site in model.activation_sites if site.role == "ffn_hidden"]


def in_float(model: QuantizedEncoder, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    for quantizer in model.quantizers.values():
        quantizer.turn_off()
    return next(iter(model(batch).values()))


@pytest.mark.parametrize(
    "family", ["bert", "distilbert", "albert", "roberta-prelayernorm", "mpnet", "modernbert", "mobilebert"]
)
@pytest.mark.parametrize("placement", ["full", "linear-inputs"])
def test_spilling_computes_the_same(family: str, placement: str) -> None:
    """Channels of any range, cut into pieces, give what the float model gives: nothing is clipped away."""
    _, encoder = families.captured(family)
    model = attach(encoder, replace(RECIPE, placement=placement, passes=()))  # type: ignore[arg-type]
    names = spillable(model, hidden(model))
    assert list(names) == hidden(model)
    width = model.quantizers[hidden(model)[0]].site.width or 0
    wide = torch.full((width,), 1.0)
    wide[1], wide[3] = 4.0, 9.0
    plan = smallest_range(-wide, wide, width, 16)
    assert plan is not None
    changed = spill(model, SPILL, dict.fromkeys(names, plan))
    expected = next(iter(encoder(BATCHES[0]).values()))
    assert torch.allclose(in_float(changed, BATCHES[0]), expected, atol=2e-5)
    assert all(
        site.shape[-1] == width + len(plan.source) for site in changed.activation_sites if site.name in names
    )


def test_the_float_model_keeps_its_weights() -> None:
    _, encoder = families.captured("bert")
    before = {name: tensor.clone() for name, tensor in encoder.graph.named_parameters()}
    octavo.quantize(encoder, RECIPE, calibration=BATCHES)
    after = dict(encoder.graph.named_parameters())
    assert before.keys() == after.keys() and all(torch.equal(before[n], after[n]) for n in before)


@pytest.fixture(scope="module")
def uneven(tiny_bert_folder) -> Encoder:  # type: ignore[no-untyped-def]
    """A tiny BERT with one hidden unit that reaches far beyond the others."""
    encoder = load(tiny_bert_folder())
    with torch.no_grad():
        for name, parameter in encoder.graph.named_parameters():
            if "intermediate" in name:
                parameter[2] *= 300
    return encoder


TEXTS = ["the dog barks.", "a cat sleeps on the mat.", "rain again"]


def test_a_spilled_model_has_a_small_range_and_is_saved_and_loaded(uneven: Encoder, tmp_path: Path) -> None:
    plain = octavo.quantize(uneven, replace(RECIPE, passes=()), calibration=TEXTS)
    model = octavo.quantize(uneven, RECIPE, calibration=TEXTS)
    for name in hidden(model):
        assert model.quantizers[name].scale < plain.quantizers[name].scale / 2
        assert (model.quantizers[name].site.width or 0) > (plain.quantizers[name].site.width or 0)
    again = load(model.save(tmp_path / "saved"))
    _, batch = next(iter(uneven.batches(TEXTS)))
    assert torch.equal(model(batch)["last_hidden_state"], again(batch)["last_hidden_state"])
    errors = [
        float((m(batch)["last_hidden_state"] - uneven(batch)["last_hidden_state"]).norm())
        for m in (model, plain)
    ]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_a_file_computes_what_the_simulation_does_without_clipping(
    uneven: Encoder, backend: str, tmp_path: Path
) -> None:
    import onnx

    model = octavo.quantize(uneven, RECIPE, calibration=TEXTS)
    file = tmp_path / "model.onnx"
    octavo.export(model, file, backend=backend)
    operators = [node.op_type for node in onnx.load(file).graph.node]
    assert not {"Clip", "Min", "Max"} & set(operators)  # QuantizeLinear saturates where the pieces end


def test_ranges_come_from_data(uneven: Encoder) -> None:
    with pytest.raises(CalibrationError, match="spills ranges found from data; give calibration texts"):
        octavo.quantize(uneven, RECIPE)


@pytest.mark.parametrize(
    ("change", "kind"),
    [({"granularity": PerEmbedding()}, "per-embedding"), ({"dynamic": True}, "dynamic")],
    ids=["several", "dynamic"],
)
def test_other_ranges_than_one_static_one_are_refused(
    uneven: Encoder, change: dict[str, object], kind: str
) -> None:
    several = Override(roles=("ffn_hidden",), **change)  # type: ignore[arg-type]
    base = replace(RECIPE, activations=TensorSpec(), overrides=(several,))
    with pytest.raises(SpecError, match=rf"spill: layers\.0\.ffn_hidden has {kind} ranges.*skip it"):
        octavo.quantize(uneven, base, calibration=TEXTS)


def test_sites_that_no_linear_layer_makes_stay_and_that_is_said(uneven: Encoder) -> None:
    alone = replace(RECIPE, passes=(Spill(roles=("ffn_input",)),))
    with pytest.raises(
        SpecError, match=r"spill: none of its 2 sites can spill.*layers\.0\.ffn_input\); take"
    ):
        octavo.quantize(uneven, alone, calibration=TEXTS)
    norms = replace(RECIPE, passes=(Spill(roles=("ffn_input",), optional=True),))
    with pytest.warns(OctavoWarning, match=r"2 sites do not spill.*layers\.0\.ffn_input\); skip them, or"):
        octavo.quantize(uneven, norms, calibration=TEXTS)


def test_two_passes_for_one_site_are_refused(uneven: Encoder) -> None:
    twice = replace(RECIPE, passes=(SPILL, Spill(roles=("ffn_hidden",), share=0.25)))
    with pytest.raises(
        SpecError, match=r"spill: two passes name layers\.0\.ffn_hidden; let one of them skip it"
    ):
        octavo.quantize(uneven, twice, calibration=TEXTS)
