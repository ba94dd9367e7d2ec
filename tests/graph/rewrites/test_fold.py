from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import octavo
from octavo.errors import CalibrationError, OctavoWarning, SpecError
from octavo.graph import Encoder, Head, attach
from octavo.graph.rewrites.fold import Change, fold
from octavo.graph.rewrites.sharing import groups_of
from octavo.methods import load
from octavo.spec import AllMinMax, Fold, Override, PerEmbedding, Recipe, TensorSpec
from octavo.spec.presets import recipe
from tests.graph import families

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


SITES = {
    "norms and hidden": ("ffn_input", "layer_output", "ffn_hidden"),
    "values": ("value", "attention_context"),
    "scores": ("query", "key"),
    "all": ("ffn_input", "layer_output", "ffn_hidden", "value", "query"),
}


@pytest.mark.parametrize("shifted", [False, True], ids=["scaled", "shifted"])
@pytest.mark.parametrize("roles", SITES.values(), ids=SITES)
def test_folding_computes_the_same(encoder: Encoder, roles: tuple[str, ...], shifted: bool) -> None:
    model = attach(encoder, folded())
    sites = [name for name, quantizer in model.quantizers.items() if quantizer.site.role in roles]
    groups, refused = groups_of(model, sites)
    assert groups and not refused
    generator = torch.Generator().manual_seed(0)
    changes = []
    for group in groups:
        factor = torch.rand(group[0].width, generator=generator) + 0.5
        shift = torch.randn(group[0].width, generator=generator)
        changes.append((group, Change(factor, shift if shifted and group[0].shifts else None)))
    changed = fold(model, FOLD, changes)
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


# -- weights that several layers share -----------------------------------------------------------------------

WIDE = replace(
    recipe("int8"),
    weights=TensorSpec(bits=16, symmetric=True),
    activations=TensorSpec(bits=16, estimator=AllMinMax()),
)
BATCHES = [families.batch((3, 12), seed=seed) for seed in range(3)]


@pytest.mark.filterwarnings("ignore:.* sites are not folded")
@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("albert", "sequence-classification"),
        ("albert", "masked-lm"),
        ("bert", "masked-lm"),
        ("mpnet", "encoder"),
    ],
    ids=lambda value: value,
)
def test_at_16_bits_folding_is_the_identity_even_where_layers_share_weights(family: str, head: Head) -> None:
    _, float_model = families.captured(family, head)
    model = octavo.quantize(float_model, WIDE, calibration=BATCHES)
    name = model.output_names[0]
    # other sites are on a grid of 16 bits too: far below what a wrongly scaled weight does
    torch.testing.assert_close(model(BATCHES[0])[name], float_model(BATCHES[0])[name], rtol=0, atol=2e-3)


def test_a_weight_that_reads_another_tensor_elsewhere_is_not_scaled_and_that_is_said() -> None:
    """The first of ALBERT's layers reads the embeddings' projection, with the weights of all the others."""
    _, albert = families.captured("albert")
    without = replace(WIDE, passes=(Fold(roles=("ffn_input", "layer_output")),))
    with pytest.warns(OctavoWarning, match=r"not folded.*layer_output: its weights are shared with layers"):
        model = octavo.quantize(albert, without, calibration=BATCHES)
    folded = {name.split(".")[1] for name, _ in model.graph.named_parameters() if name.startswith("folded.")}
    assert "layers_0_ffn_input" in folded and "layers_0_layer_output" not in folded


def test_depths_that_share_weights_take_factors_together_with_what_enters_the_first() -> None:
    _, albert = families.captured("albert")
    roles = ("embedding_projection", "layer_output")
    model = octavo.quantize(albert, replace(WIDE, passes=(Fold(roles=roles),)), calibration=BATCHES)
    folded = {name.split(".")[1] for name, _ in model.graph.named_parameters() if name.startswith("folded.")}
    assert "layers_0_layer_output" in folded
    name = model.output_names[0]
    torch.testing.assert_close(model(BATCHES[0])[name], albert(BATCHES[0])[name], rtol=0, atol=2e-3)


def test_a_head_tied_to_the_token_embeddings_is_refused_where_nothing_else_is_asked_for() -> None:
    _, bert = families.captured("bert", "masked-lm")
    alone, optional = (
        replace(WIDE, passes=(Fold(roles=("head_norm",), optional=optional),)) for optional in (False, True)
    )
    sentence = r"fold: none of its 1 sites can be folded \(.*head\.norm.*shared.*optional: true"
    with pytest.raises(SpecError, match=sentence):
        octavo.quantize(bert, alone, calibration=BATCHES)
    with pytest.warns(OctavoWarning, match="1 sites are not folded"):
        model = octavo.quantize(bert, optional, calibration=BATCHES)
    assert not [name for name, _ in model.graph.named_parameters() if name.startswith("folded.")]
