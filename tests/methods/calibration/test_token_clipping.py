from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import octavo
from octavo.errors import OctavoWarning, SpecError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.methods import quantize
from octavo.methods.calibration.output_error import OutputError, spread_texts
from octavo.methods.calibration.token_clipping import _between, _coarse_shares
from octavo.spec import AllMinMax, ClipTokens, Override, Recipe, TensorSpec, TokenQuantile
from tests.graph import families

ODD = 3  # a token that the random batches lack, in front of every text
BATCHES = [
    {
        "input_ids": torch.nn.functional.pad(batch["input_ids"], (1, 0), value=ODD),
        "attention_mask": torch.nn.functional.pad(batch["attention_mask"], (1, 0), value=1),
    }
    for batch in (families.batch((3, 12), padded=True, seed=seed) for seed in range(4))
]
FULL = Recipe(name="full", weights=None, activations=TensorSpec(estimator=AllMinMax()))


@pytest.fixture(scope="module")
def odd() -> Encoder:
    """A BERT with a token whose embedding is a thousand times larger than all others: norms do not mind."""
    encoder = families.fresh("bert", "token-classification")
    with torch.no_grad():
        encoder.graph.get_parameter("bert.embeddings.word_embeddings.weight")[ODD] *= 1000
    return encoder


def clipped(encoder: Encoder, recipe: Recipe = FULL, **options: object) -> QuantizedEncoder:
    settings = ClipTokens(**{"texts": 8, **options})  # type: ignore[arg-type]
    return quantize(encoder, replace(recipe, passes=(settings,)), BATCHES)


def error(encoder: Encoder, model: QuantizedEncoder) -> float:
    return OutputError(encoder, spread_texts(BATCHES, 8)).of(model)


@pytest.mark.parametrize("per_site", [False, True], ids=["one share", "share of each site"])
def test_a_token_that_reaches_far_beyond_all_others_is_left_out(odd: Encoder, per_site: bool) -> None:
    plain, model = quantize(odd, FULL, BATCHES), clipped(odd, per_site=per_site, lowest=0.8)
    assert error(odd, model) < 0.5 * error(odd, plain)
    wide, narrow = (
        next(float(q.scale) for q in m.quantizers.values() if q.site.role == "embedding_sum")
        for m in (plain, model)
    )
    assert narrow < 0.01 * wide


def test_a_model_in_good_health_is_left_alone(odd: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = quantize(odd, FULL, BATCHES)
    wrong = error(odd, plain)
    searched = clipped(odd, above=0.5 * wrong)
    assert error(odd, searched) < wrong
    monkeypatch.setattr("octavo.methods.calibration.token_clipping._Search", None)
    healthy = clipped(odd, above=min(0.99, 1.5 * wrong))
    assert all(torch.equal(q.scale, plain.quantizers[name].scale) for name, q in healthy.quantizers.items())


@pytest.mark.parametrize("bits", [8, 6, 4])
@pytest.mark.parametrize("found", [AllMinMax(), TokenQuantile(keep=0.5)], ids=["min-max", "narrow"])
def test_the_error_is_never_more_than_that_of_the_ranges_found_nor_of_min_max(
    bits: int, found: AllMinMax | TokenQuantile
) -> None:
    encoder = families.captured("bert")[1]
    recipe = replace(FULL, activations=TensorSpec(bits=bits, estimator=found))
    whole = replace(FULL, activations=TensorSpec(bits=bits, estimator=AllMinMax()))
    model = clipped(encoder, recipe)
    least = min(error(encoder, quantize(encoder, each, BATCHES)) for each in (recipe, whole))
    assert error(encoder, model) <= least
    assert model.provenance["findings"]["clip-tokens"]["error"]["after"] == pytest.approx(
        error(encoder, model)
    )


def test_the_same_call_chooses_the_same_ranges(odd: Encoder) -> None:
    first, second = clipped(odd), clipped(odd)
    assert all(torch.equal(q.scale, second.quantizers[n].scale) for n, q in first.quantizers.items())


def test_weights_and_the_float_model_take_no_gradients_from_it(odd: Encoder) -> None:
    clipped(odd)
    assert all(parameter.grad is None for parameter in odd.graph.parameters())


def test_attention_probabilities_and_wide_grids_stay_as_they_are(odd: Encoder) -> None:
    recipe = replace(FULL, overrides=(Override(roles=("ffn_output",), bits=16),))
    plain, model = quantize(odd, recipe, BATCHES), clipped(odd, recipe)
    kept = [n for n, q in model.quantizers.items() if q.site.role in ("attention_probs", "ffn_output")]
    assert len(kept) == 4
    assert all(torch.equal(plain.quantizers[n].scale, model.quantizers[n].scale) for n in kept)


def test_a_recipe_with_nothing_to_clip_is_told() -> None:
    encoder = families.captured("bert")[1]
    with pytest.warns(OctavoWarning, match="clip-tokens does nothing, as no activation has a static range"):
        clipped(encoder, replace(FULL, activations=TensorSpec(bits=16)))


def test_clipped_ranges_are_saved(odd: Encoder, tmp_path: Path) -> None:
    model = clipped(odd)
    loaded = octavo.load(model.save(tmp_path / "saved"))
    assert torch.equal(loaded(BATCHES[0])["logits"], model(BATCHES[0])["logits"])
    assert loaded.provenance["findings"] == model.provenance["findings"]


def test_progress_ends_complete(odd: Encoder) -> None:
    told: list[tuple[int, int]] = []
    quantize(
        odd,
        replace(FULL, passes=(ClipTokens(texts=4),)),
        BATCHES,
        progress=lambda done, total: told.append((done, total)),
    )
    assert told[-1][0] == told[-1][1] and all(done <= total for done, total in told)


def test_shares_are_hundredths_from_one_down() -> None:
    assert _coarse_shares(0.97) == [1.0, 0.99, 0.98, 0.97]
    coarse = _coarse_shares(0.1)
    assert coarse[0] == 1 and coarse[-1] == 0.1 and len(coarse) <= 12
    assert _coarse_shares(1.0) == [1.0]


def test_the_search_ends_between_the_neighbours_of_the_best() -> None:
    assert _between({1.0: 3.0, 0.9: 1.0, 0.8: 2.0}) == [p / 100 for p in range(81, 100) if p != 90]
    assert _between({1.0: 1.0, 0.98: 2.0}) == [0.99]
    assert _between({1.0: 1.0}) == []


@pytest.mark.parametrize("lowest", [0, 1.5])
def test_a_share_outside_its_interval_is_refused(lowest: float) -> None:
    with pytest.raises(SpecError, match=f"lowest must be a number above 0 and at most 1, got {lowest}"):
        ClipTokens(lowest=lowest)


def test_weights_have_no_tokens() -> None:
    recipe = Recipe(name="w", weights=TensorSpec(estimator=TokenQuantile()), activations=None)
    with pytest.raises(SpecError, match=r"TokenQuantile\(keep=0.99\) finds ranges of activations only"):
        quantize(families.captured("bert")[1], recipe)
