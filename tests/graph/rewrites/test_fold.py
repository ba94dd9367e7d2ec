from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import octavo
from octavo.errors import CalibrationError, OctavoWarning, SpecError
from octavo.graph import Encoder, attach
from octavo.graph.rewrites.fold import fold, weights_read
from octavo.methods import load
from octavo.spec import Fold, Override, PerEmbedding, Recipe, TensorSpec

FOLD = Fold(roles=("ffn_input", "ffn_hidden"))
TEXTS = ["the dog barks.", "a cat sleeps on the mat.", "rain again"]


def folded(placement: str = "linear-inputs") -> Recipe:
    return Recipe(
        name="folded",
        placement=placement,  # type: ignore[arg-type]
        weights=TensorSpec(symmetric=True),
        activations=TensorSpec(),
        overrides=(Override(roles=("norm_weight",), off=True),),
        passes=(FOLD,),
    )


@pytest.fixture(scope="module")
def encoder(tiny_bert_folder) -> Encoder:  # type: ignore[no-untyped-def]
    return load(tiny_bert_folder())


def test_folding_computes_the_same(encoder: Encoder) -> None:
    model = attach(encoder, folded())
    factors = {
        name: torch.rand(quantizer.site.width or 0, generator=torch.Generator().manual_seed(0)) + 0.5
        for name, quantizer in model.quantizers.items()
        if FOLD.applies(name, quantizer.site.role) and weights_read(model, name)
    }
    assert len(factors) == 4
    changed = fold(model, FOLD, factors)
    for quantizer in changed.quantizers.values():
        quantizer.turn_off()
    _, batch = next(iter(encoder.batches(TEXTS)))
    found, expected = changed(batch)["last_hidden_state"], encoder(batch)["last_hidden_state"]
    assert torch.allclose(found, expected, atol=1e-5)


def test_the_float_model_keeps_its_weights(encoder: Encoder) -> None:
    before = {name: tensor.clone() for name, tensor in encoder.graph.named_parameters()}
    octavo.quantize(encoder, folded(), calibration=TEXTS)
    after = dict(encoder.graph.named_parameters())
    assert before.keys() == after.keys() and all(torch.equal(before[n], after[n]) for n in before)


def test_a_folded_model_is_saved_and_loaded(encoder: Encoder, tmp_path: Path) -> None:
    model = octavo.quantize(encoder, folded(), calibration=TEXTS)
    again = load(model.save(tmp_path / "saved"))
    _, batch = next(iter(encoder.batches(TEXTS)))
    assert torch.equal(model(batch)["last_hidden_state"], again(batch)["last_hidden_state"])


def test_sites_that_others_read_are_not_folded_and_that_is_said(encoder: Encoder) -> None:
    with pytest.warns(OctavoWarning, match=r"2 sites are not folded.*layers\.0\.ffn_input"):
        octavo.quantize(encoder, folded("full"), calibration=TEXTS)


def test_factors_come_from_data(encoder: Encoder) -> None:
    with pytest.raises(CalibrationError, match="folds ranges found from data; give calibration texts"):
        octavo.quantize(encoder, folded())


def test_a_site_with_several_ranges_is_refused(encoder: Encoder) -> None:
    several = Override(roles=("ffn_input",), granularity=PerEmbedding())
    with pytest.raises(SpecError, match=r"fold: layers\.0\.ffn_input has per-embedding ranges.*skip it"):
        octavo.quantize(encoder, replace(folded(), overrides=(several,)), calibration=TEXTS)


def test_a_site_whose_width_varies_is_refused(encoder: Encoder) -> None:
    fold = Fold(roles=("attention_probs",))
    with pytest.raises(
        SpecError, match=r"fold: axis -1 of layers\.0\.attention_probs is the length, which varies"
    ):
        octavo.quantize(encoder, replace(folded(), passes=(fold,)), calibration=TEXTS)


def test_two_passes_for_one_site_are_refused(encoder: Encoder) -> None:
    twice = (FOLD, Fold(roles=("ffn_input",)))
    with pytest.raises(
        SpecError, match=r"fold: two passes name layers\.0\.ffn_input; let one of them skip it"
    ):
        octavo.quantize(encoder, replace(folded(), passes=twice), calibration=TEXTS)
