from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import octavo
from octavo.errors import OctavoWarning, OutputError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.graph.quantizers.quantizer import State
from octavo.methods import quantize
from octavo.spec import AllMinMax, PerChannel, Recipe, TensorSpec, TuneRanges
from tests.graph import families

BATCHES = [families.batch((4, 12), padded=True, seed=seed) for seed in range(4)]
LOW = Recipe(
    name="low",
    weights=TensorSpec(symmetric=True, granularity=PerChannel()),
    activations=TensorSpec(bits=3, estimator=AllMinMax()),
)
STEPS = TuneRanges(steps=20, batch_size=4)


@pytest.fixture(scope="module")
def bert() -> Encoder:
    return families.captured("bert", "token-classification")[1]


def tuned(encoder: Encoder, settings: TuneRanges = STEPS, **options: object) -> QuantizedEncoder:
    return quantize(encoder, replace(LOW, passes=(settings,)), BATCHES, **options)  # type: ignore[arg-type]


def error(model: QuantizedEncoder) -> dict[str, float]:
    found: dict[str, float] = model.provenance["findings"]["tune-ranges"]["error"]
    return found


def test_the_error_on_held_out_texts_falls(bert: Encoder) -> None:
    found = error(tuned(bert))
    assert found["after"] < 0.95 * found["before"]


def test_a_rate_that_ruins_everything_leaves_the_start(bert: Encoder) -> None:
    plain = quantize(bert, LOW, BATCHES)
    model = tuned(bert, TuneRanges(steps=10, learning_rate=50.0, batch_size=4))
    assert error(model)["after"] == error(model)["before"]
    for name, quantizer in plain.quantizers.items():
        assert torch.allclose(model.quantizers[name].scale, quantizer.scale, rtol=1e-6)


def test_everything_is_fixed_and_the_float_model_untouched_afterwards(bert: Encoder) -> None:
    before = [parameter.detach().clone() for parameter in bert.graph.parameters()]
    model = tuned(bert)
    assert all(quantizer.state is State.FIX for quantizer in model.quantizers.values())
    assert all(
        torch.equal(p, old) and p.grad is None for p, old in zip(bert.graph.parameters(), before, strict=True)
    )


def test_the_same_seed_learns_the_same_and_it_is_saved(bert: Encoder, tmp_path: Path) -> None:
    first, second = tuned(bert), tuned(bert)
    loaded = octavo.load(first.save(tmp_path / "saved"))
    for other in (second, loaded):
        assert torch.equal(first(BATCHES[0])["logits"], other(BATCHES[0])["logits"])


class Interrupted(Exception):
    pass


def test_an_interrupted_run_resumes_to_the_same_ranges(bert: Encoder, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if total == STEPS.steps and done == 13:
            raise Interrupted

    with pytest.raises(Interrupted):
        tuned(bert, work=tmp_path / "work", progress=stop)
    steps: list[int] = []
    resumed = tuned(bert, work=tmp_path / "work", progress=lambda done, total: steps.append(done))
    whole = tuned(bert)
    assert torch.equal(resumed(BATCHES[0])["logits"], whole(BATCHES[0])["logits"])
    assert error(resumed) == error(whole)
    assert 13 in steps and 12 not in [s for s in steps if s > len(BATCHES)]


def test_a_folder_of_another_run_is_refused(bert: Encoder, tmp_path: Path) -> None:
    tuned(bert, work=tmp_path / "work")
    with pytest.raises(OutputError, match="steps"):
        tuned(bert, replace(STEPS, steps=10), work=tmp_path / "work")


def test_nothing_to_learn_is_told(bert: Encoder) -> None:
    with pytest.warns(OctavoWarning, match="tune-ranges does nothing"):
        quantize(bert, replace(LOW, activations=TensorSpec(bits=16), passes=(STEPS,)), BATCHES)


def test_two_texts_are_enough(bert: Encoder) -> None:
    quantize(bert, replace(LOW, passes=(TuneRanges(steps=2),)), [families.batch((2, 8))])
