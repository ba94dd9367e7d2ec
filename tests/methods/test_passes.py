from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import octavo
from octavo.errors import CalibrationError, ModelError, OctavoWarning, SiteError, SpecError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.methods.passes import PASSES
from octavo.spec import (
    AdaRound,
    AllMinMax,
    AllocateBits,
    AverageBits,
    BiasCorrection,
    ClipTokens,
    Equalize,
    FixedRanges,
    Fold,
    Gptq,
    IntegerFunctions,
    LearnedRanges,
    MigrateGamma,
    Override,
    Pass,
    PerGroup,
    Recipe,
    RunningRanges,
    ShiftAndScale,
    SmoothQuant,
    Spill,
    SplitGroups,
    Stage,
    TensorSpec,
    TuneRanges,
)
from octavo.spec.presets import recipe
from tests.graph import families

BATCHES = [families.batch((3, 12), padded=True, seed=seed) for seed in range(4)]
FOLD = Fold(roles=("ffn_input", "ffn_hidden"))
W8A8 = Recipe(
    name="w8a8-linear",
    placement="linear-inputs",
    weights=TensorSpec(symmetric=True),
    activations=TensorSpec(),
    overrides=(Override(roles=("norm_weight",), off=True),),
)
GROUPS = replace(
    recipe("w8a8"),
    overrides=(Override(roles=("ffn_input", "ffn_output", "ffn_residual"), granularity=PerGroup(groups=2)),),
)
WIDE = TensorSpec(bits=16, symmetric=True, estimator=AllMinMax())
RECIPES = {
    "fold": replace(W8A8, passes=(FOLD,)),
    "equalize": replace(W8A8, passes=(Equalize(roles=FOLD.roles),)),
    "adaround": replace(W8A8, passes=(AdaRound(iterations=20),)),
    "gptq": replace(W8A8, passes=(Gptq(order=False),)),
    "fold, gptq": replace(W8A8, passes=(FOLD, Gptq(asymmetric=True, sweeps=1))),
    "bias-correction": replace(W8A8, passes=(BiasCorrection(),)),
    "gptq, bias-correction, split-groups": replace(GROUPS, passes=(Gptq(), BiasCorrection(), SplitGroups())),
    "fold, adaround": replace(W8A8, passes=(FOLD, AdaRound(iterations=20))),
    "allocate-bits": replace(W8A8, passes=(AllocateBits(budget=AverageBits(bits=5), parts=2),)),
    "allocate-bits, fold": replace(W8A8, passes=(AllocateBits(budget=AverageBits(bits=5), parts=2), FOLD)),
    "clip-tokens": replace(W8A8, passes=(ClipTokens(texts=4),)),
    "clip-tokens, split-groups": replace(GROUPS, passes=(ClipTokens(texts=4), SplitGroups())),
    "tune-ranges": replace(W8A8, passes=(TuneRanges(steps=8, batch_size=2),)),
    "integer-functions": recipe("ibert"),
    "split-groups": replace(GROUPS, passes=(SplitGroups(),)),
    "running-ranges": replace(W8A8, passes=(RunningRanges(),)),
}


@pytest.fixture(scope="module")
def bert() -> Encoder:
    return families.captured("bert")[1]


def outputs(model: Encoder) -> torch.Tensor:
    return model(BATCHES[0])["logits"]


def test_every_pass_can_be_carried_out() -> None:
    missing = [kind.__name__ for kind in Pass.variants().values() if kind not in PASSES]
    assert not missing, f"octavo.methods.passes.PASSES lacks {missing}"


@pytest.mark.parametrize("kind", Pass.variants().values(), ids=lambda kind: kind.variant_name)
def test_a_pass_plans_runs_or_is_left_to_training(kind: type[Pass]) -> None:
    method = PASSES[kind]
    ways = {Stage.SPECS: method.plan, Stage.TRAINING: None}
    assert (ways.get(kind.stage, method.run) is None) == (kind.stage is Stage.TRAINING)
    assert bool(method.purpose) == method.needs_texts
    # what comes before ranges changes weights or the graph: such passes cannot share the forward passes
    assert not (method.shares_calibration and kind.stage in (Stage.FLOAT, Stage.WEIGHTS))


@pytest.mark.filterwarnings("ignore:recipe .* ends with training")
@pytest.mark.filterwarnings("ignore:GPTQ. .* texts give")
@pytest.mark.parametrize("name", RECIPES)
def test_every_pass_is_saved_and_loaded_bit_for_bit(bert: Encoder, name: str, tmp_path: Path) -> None:
    model = octavo.quantize(bert, RECIPES[name], calibration=BATCHES)
    loaded = octavo.load(model.save(tmp_path / "model"))
    assert isinstance(loaded, QuantizedEncoder)
    assert loaded.passes == model.passes and loaded.recipe == model.recipe
    assert torch.equal(outputs(loaded), outputs(model))


def test_passes_are_recorded_in_order(bert: Encoder) -> None:
    model = octavo.quantize(bert, RECIPES["fold, adaround"], calibration=BATCHES)
    assert model.passes == RECIPES["fold, adaround"].passes
    split = octavo.split_groups(octavo.quantize(bert, GROUPS, calibration=BATCHES))
    assert split.passes == (SplitGroups(),) and split.recipe == GROUPS


SIXTEEN = TensorSpec(bits=16, estimator=AllMinMax())
AT_16_BITS: dict[type[Pass], Recipe] = {
    AllocateBits: replace(
        W8A8, passes=(AllocateBits(budget=AverageBits(bits=16), choices=(16,), parts=2),), activations=SIXTEEN
    ),
    **{
        type(entry): replace(W8A8, passes=(entry,), activations=SIXTEEN)
        for entry in (
            FOLD,
            SmoothQuant(roles=FOLD.roles),
            MigrateGamma(roles=("ffn_input",)),
            ShiftAndScale(roles=("ffn_input",), thresholds=2),
            Equalize(roles=FOLD.roles),
            Spill(roles=("ffn_hidden",), share=0.5),
        )
    },
    AdaRound: replace(W8A8, passes=(AdaRound(iterations=5),), activations=SIXTEEN),
    BiasCorrection: replace(
        W8A8, passes=(FOLD, AdaRound(iterations=5), BiasCorrection()), activations=SIXTEEN
    ),
    ClipTokens: replace(W8A8, passes=(ClipTokens(texts=4),), activations=SIXTEEN),
    Gptq: replace(W8A8, passes=(Gptq(asymmetric=True, sweeps=1),), activations=SIXTEEN),
    TuneRanges: replace(W8A8, passes=(TuneRanges(steps=4),), activations=SIXTEEN),
    IntegerFunctions: replace(recipe("ibert"), overrides=recipe("ibert").overrides[:2], activations=WIDE),
    SplitGroups: replace(GROUPS, passes=(SplitGroups(),), activations=SIXTEEN),
    LearnedRanges: replace(W8A8, passes=(LearnedRanges(),), activations=SIXTEEN),
    FixedRanges: replace(W8A8, passes=(FixedRanges(),), activations=SIXTEEN),
    RunningRanges: replace(W8A8, passes=(RunningRanges(),), activations=SIXTEEN),
}


def test_every_pass_is_tried_at_16_bits() -> None:
    missing = [kind.__name__ for kind in Pass.variants().values() if kind not in AT_16_BITS]
    assert not missing, f"add {missing} to AT_16_BITS"


@pytest.mark.filterwarnings("ignore:recipe .* ends with training")
@pytest.mark.filterwarnings("ignore:GPTQ. .* texts give")
@pytest.mark.filterwarnings("ignore:.* sites are not folded")
@pytest.mark.filterwarnings("ignore:.*(clip-tokens|tune-ranges) does nothing")
@pytest.mark.parametrize("family", ["bert", "distilbert", "albert", "roberta-prelayernorm", "mpnet"])
@pytest.mark.parametrize("kind", AT_16_BITS, ids=lambda kind: kind.variant_name)
def test_every_pass_is_the_identity_at_16_bits(kind: type[Pass], family: str) -> None:
    """Few bits hide what a pass does wrong: at 16 bits all that is left is the float model."""
    _, encoder = families.captured(family)
    wide = replace(AT_16_BITS[kind], weights=TensorSpec(bits=16, symmetric=True))
    try:
        model = octavo.quantize(encoder, wide, calibration=BATCHES)
    except (ModelError, SpecError, SiteError) as refused:  # said, with the place: not silently wrong
        assert any(word in str(refused) for word in ("layers.", "tiny ", "role"))
        return
    scale = outputs(encoder).abs().max()
    tolerance = 0.02 if kind is IntegerFunctions else 0.002  # polynomials of second order are not exact
    assert (outputs(model) - outputs(encoder)).abs().max() < tolerance * max(1.0, float(scale))


def test_rounding_after_folding_rebuilds_the_folded_model(bert: Encoder) -> None:
    """At 16 bits nothing is lost, whatever went before: the reference must be folded as the model is."""
    wide = replace(
        RECIPES["fold, adaround"],
        weights=TensorSpec(bits=16, symmetric=True),
        activations=TensorSpec(bits=16),
    )
    model = octavo.quantize(bert, wide, calibration=BATCHES)
    assert torch.allclose(outputs(model), outputs(bert), atol=2e-3)


def test_allocated_bits_are_overrides_of_the_models_recipe(bert: Encoder) -> None:
    model = octavo.quantize(bert, RECIPES["allocate-bits"], calibration=BATCHES)
    assert model.recipe.name == "w8a8-linear" and model.recipe.passes == () == model.passes
    bits = {
        q.spec.bits for n, q in model.quantizers.items() if q.site.role == "linear_weight" and "layers" in n
    }
    assert bits <= {2, 3, 4, 8} and len(model.recipe.overrides) > 1


def test_what_needs_labels_is_left_out_and_that_is_said(bert: Encoder) -> None:
    with pytest.warns(OctavoWarning, match=r"ends with training \(running-ranges\): .* `octavo distill`"):
        model = octavo.quantize(bert, RECIPES["running-ranges"], calibration=BATCHES)
    assert model.passes == ()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fold", "folds ranges found from data; give calibration texts"),
        ("equalize", "equalizes channels by errors found from data; give calibration texts"),
        ("adaround", "rounds weights with AdaRound; give calibration texts"),
        ("bias-correction", "finds activation ranges from data; give calibration texts"),
        ("gptq", "rounds weights with GPTQ; give calibration texts"),
        ("allocate-bits", "allocates bits by second derivatives; give calibration texts"),
        ("clip-tokens", "finds activation ranges from data; give calibration texts"),
        ("integer-functions", "finds activation ranges from data; give calibration texts"),
    ],
)
def test_a_pass_that_reads_data_says_so_without_any(bert: Encoder, name: str, message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        octavo.quantize(bert, RECIPES[name])


def test_integer_functions_share_calibration_with_other_recipes(bert: Encoder) -> None:
    from octavo.methods.pipeline import quantize_together

    plain = replace(recipe("ibert"), passes=())
    shared = quantize_together(bert, [plain, recipe("ibert")], BATCHES)
    assert shared[1].passes == (IntegerFunctions(),)
    assert torch.equal(
        outputs(shared[1]), outputs(octavo.quantize(bert, recipe("ibert"), calibration=BATCHES))
    )
