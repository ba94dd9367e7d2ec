from __future__ import annotations

import random
import string
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.errors import DataError, OctavoWarning, OutputError, SpecError
from octavo.graph import Encoder, State
from octavo.methods import load, quantize
from octavo.methods.distillation.distilling import _looked_at, distill
from octavo.methods.distillation.settings import Distillation
from octavo.methods.training.loop import RunOptions
from octavo.sentence import SentenceModules
from octavo.spec import FixedRanges, Fold, Recipe
from octavo.spec.presets import recipe

QUICK = Distillation(
    epochs=3, batch_size=8, learning_rate=1e-3, range_learning_rate=1e-2, calibration=12, max_length=32
)


def sentences(count: int, seed: int = 0) -> list[str]:
    chooser = random.Random(seed)

    def word() -> str:
        return "".join(chooser.choices(string.ascii_lowercase, k=chooser.randint(1, 5)))

    return [" ".join(word() for _ in range(chooser.randint(1, 5))) for _ in range(count)]


TEXTS = sentences(100)

HEADS: dict[str, tuple[str, dict[str, Any], str]] = {
    "embedder": ("BertModel", {}, "1 - cosine"),
    "encoder": ("BertModel", {}, "relative squared error of token vectors"),
    "classes": ("BertForSequenceClassification", {"num_labels": 3}, "KL divergence"),
    "labels": (
        "BertForSequenceClassification",
        {"num_labels": 3, "problem_type": "multi_label_classification"},
        "KL divergence",
    ),
    "score": ("BertForSequenceClassification", {"num_labels": 1}, "squared error over the variance"),
    "tags": ("BertForTokenClassification", {"num_labels": 5}, "KL divergence"),
    "spans": ("BertForQuestionAnswering", {}, "KL divergence"),
    "masks": ("BertForMaskedLM", {}, "KL divergence"),
}


@pytest.fixture(scope="module")
def make(tiny_bert_folder: Callable[..., Path]) -> Callable[[str], Encoder]:
    """A factory of tiny models by what their head says; weights are larger, so that texts differ."""
    made: dict[str, Encoder] = {}

    def encoder(kind: str) -> Encoder:
        if kind not in made:
            architecture, settings, _ = HEADS[kind]
            made[kind] = load(str(tiny_bert_folder(architecture, initializer_range=0.2, **settings)))
            made[kind].sentence = SentenceModules(embeds=kind == "embedder")
        return made[kind]

    return encoder


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*clip", category=OctavoWarning)
        yield


@pytest.mark.parametrize("kind", HEADS)
def test_a_model_of_any_head_gets_closer_to_its_teacher_and_is_an_ordinary_saved_model(
    make: Callable[[str], Encoder], kind: str, tmp_path: Path
) -> None:
    encoder = make(kind)
    before = {name: value.detach().clone() for name, value in encoder.graph.named_parameters()}
    model, result = distill(encoder, recipe("w4a8-qat"), TEXTS, QUICK)
    assert result.measure.startswith(HEADS[kind][2])
    assert result.error_after < 0.95 * result.error_before
    assert all(quantizer.state is State.FIX for quantizer in model.quantizers.values())
    for name, value in encoder.graph.named_parameters():
        assert torch.equal(value, before[name]) and value.grad is None, name
    again = load(str(model.save(tmp_path / "model")))
    batch = next(model.batches(TEXTS[:8]))[1]
    for name, output in model(batch).items():
        assert torch.allclose(again(batch)[name], output, atol=1e-4), name


def test_ranges_alone_leave_every_weight_and_weights_alone_every_range(
    make: Callable[[str], Encoder],
) -> None:
    encoder = make("spans")
    start = quantize(encoder, recipe("w4a8-qat"), TEXTS[:12])
    moved = {}
    for learn in ("ranges", "weights", "all"):
        settings = replace(QUICK, learn=learn)  # type: ignore[arg-type]
        model, result = distill(encoder, recipe("w4a8-qat"), TEXTS, settings)
        assert result.trainings[0].kept_epoch > 0
        site = next(site for site in model.weight_sites if site.name == "layers.1.ffn_hidden.weight")
        ratio = model.quantizers["layers.1.ffn_hidden"].scale / model_scale(encoder, settings)
        moved[learn] = (
            not torch.equal(model.parameter(site), start.parameter(site)),
            not torch.allclose(ratio, torch.ones(1), rtol=1e-5),
        )
    assert moved == {"ranges": (False, True), "weights": (True, False), "all": (True, True)}


def model_scale(encoder: Encoder, settings: Distillation) -> torch.Tensor:
    """The scale that training starts from: calibrated on the first texts that are learned from."""
    shuffled = list(TEXTS)
    random.Random(0).shuffle(shuffled)
    held = round(settings.held_out * len(TEXTS))
    model = quantize(
        encoder,
        recipe("w4a8-qat"),
        shuffled[held : held + settings.calibration],
        max_length=settings.max_length,
    )
    return model.quantizers["layers.1.ffn_hidden"].scale


def test_precise_tables_stay_as_they_are_and_narrow_ones_learn(make: Callable[[str], Encoder]) -> None:
    encoder = make("spans")
    for name, moves in (("w8a8", False), ("w4a8-qat", True)):
        model, _ = distill(encoder, recipe(name), TEXTS, QUICK)
        site = next(site for site in model.weight_sites if site.name == "embeddings.token.weight")
        assert torch.equal(model.parameter(site), encoder.graph.get_parameter(site.targets[0])) is not moves


PLAIN = recipe("w4a8-qat")
FOLDED = replace(PLAIN, placement="linear-inputs", passes=(Fold(roles=("ffn_input", "layer_output")),))


@pytest.mark.parametrize(
    ("start", "settings"),
    [
        pytest.param(PLAIN, replace(QUICK, hidden=1.0), id="hidden"),
        pytest.param(PLAIN, replace(QUICK, attention=1.0), id="attention"),
        pytest.param(PLAIN, replace(QUICK, blocks=True), id="blocks"),
        pytest.param(FOLDED, replace(QUICK, blocks=True), id="blocks of a folded model"),
    ],
)
def test_tensors_inside_the_model_teach_as_well(
    make: Callable[[str], Encoder], settings: Distillation, start: Recipe, tmp_path: Path
) -> None:
    encoder = make("embedder")
    model, result = distill(encoder, start, TEXTS, settings)
    assert result.error_after < 0.95 * result.error_before
    assert len(result.trainings) == (encoder.layers if settings.blocks else 1)
    again = load(str(model.save(tmp_path / "model")))
    batch = next(model.batches(TEXTS[:8]))[1]
    assert torch.allclose(again(batch)["last_hidden_state"], model(batch)["last_hidden_state"], atol=1e-4)


@pytest.mark.parametrize("name", ["int8", "int8-full", "ibert", "fp8", "q8bert-qat"])
def test_models_of_every_pass_can_be_trained_and_saved(
    make: Callable[[str], Encoder], name: str, tmp_path: Path
) -> None:
    encoder = make("classes")
    model, result = distill(encoder, recipe(name), TEXTS, replace(QUICK, epochs=1))
    assert result.error_after <= result.error_before
    again = load(str(model.save(tmp_path / "model")))
    batch = next(model.batches(TEXTS[:8]))[1]
    assert torch.allclose(again(batch)["logits"], model(batch)["logits"], atol=1e-4)


def test_a_run_that_hurts_leaves_the_start(make: Callable[[str], Encoder]) -> None:
    encoder = make("classes")
    wild = replace(QUICK, learning_rate=0.3, range_learning_rate=0.5, epochs=1)
    _, result = distill(encoder, recipe("w8a8"), TEXTS, wild)
    assert result.trainings[0].kept_epoch == 0
    assert result.error_after == pytest.approx(result.error_before, rel=1e-3)


@pytest.mark.parametrize("blocks", [False, True], ids=["end to end", "blocks"])
def test_a_killed_run_continues_to_the_same_model(
    make: Callable[[str], Encoder], blocks: bool, tmp_path: Path
) -> None:
    encoder, settings = make("classes"), replace(QUICK, blocks=blocks)
    whole, _ = distill(encoder, recipe("w8a8"), TEXTS, settings)
    stop_at = 40 if blocks else 20

    def stop(done: int, total: int) -> None:
        if total > 24 and done == stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        options = RunOptions(progress=stop, every=0.0)
        distill(encoder, recipe("w8a8"), TEXTS, settings, work=tmp_path / "w", options=options)
    again, result = distill(encoder, recipe("w8a8"), TEXTS, settings, work=tmp_path / "w")
    assert any(training.resumed_at > 0 for training in result.trainings)
    for name, quantizer in whole.quantizers.items():
        assert torch.equal(quantizer.scale, again.quantizers[name].scale), name


def test_a_folder_of_other_settings_recipe_or_texts_is_refused(
    make: Callable[[str], Encoder], tmp_path: Path
) -> None:
    encoder, once = make("classes"), replace(QUICK, epochs=1)
    work = tmp_path / "w"
    distill(encoder, recipe("w8a8"), TEXTS, once, work=work)
    cases: list[tuple[str, str, list[str], Distillation]] = [
        ("epochs", "w8a8", TEXTS, replace(once, epochs=2)),
        ("recipe", "w4a8-qat", TEXTS, once),
        ("texts", "w8a8", TEXTS[1:], once),
    ]
    for differs, name, texts, settings in cases:
        with pytest.raises(OutputError, match=f"an interrupted distillation with another {differs} "):
            distill(encoder, recipe(name), texts, settings, work=work)


def test_too_few_texts_are_refused_and_few_are_told(make: Callable[[str], Encoder]) -> None:
    encoder = make("classes")
    with pytest.raises(DataError, match="no texts were given"):
        distill(encoder, recipe("w8a8"), [])
    with pytest.raises(DataError, match="3 different texts are too few to learn from; give at least 16"):
        distill(encoder, recipe("w8a8"), ["a", "b", "c", "c"] * 100)
    with pytest.warns(OctavoWarning, match="20 different texts may be learned by heart"):
        distill(encoder, recipe("w8a8"), TEXTS[:20], replace(QUICK, epochs=1))


def test_a_recipe_with_nothing_to_train_is_refused(make: Callable[[str], Encoder]) -> None:
    encoder = make("classes")
    fixed = replace(recipe("w8a8"), passes=(FixedRanges(),))
    with pytest.raises(SpecError, match="ends with fixed-ranges, so ranges alone leave nothing to train"):
        distill(encoder, fixed, TEXTS, replace(QUICK, learn="ranges"))
    with pytest.raises(SpecError, match="has dynamic ranges"):
        distill(encoder, recipe("q8bert"), TEXTS, QUICK)


def test_attention_that_is_not_computed_cannot_be_compared(make: Callable[[str], Encoder]) -> None:
    model = quantize(make("classes"), recipe("w8a8"), TEXTS[:8])
    activations, weights = model.sites
    model.sites = tuple(s for s in activations if s.role != "attention_probs"), weights
    with pytest.raises(SpecError, match=r"no attention probabilities .* leave out that loss"):
        _looked_at(model, replace(QUICK, attention=1.0))
