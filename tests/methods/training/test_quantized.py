from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from octavo.errors import OutputError, SpecError
from octavo.graph import Encoder, State
from octavo.methods import load
from octavo.methods.training.finetuning import finetune, own_copy
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.labelled import Labelled
from octavo.methods.training.loop import RunOptions
from octavo.methods.training.quantized import finish, learned_ranges, prepare, qat
from octavo.spec import FixedRanges, LearnedRanges, RunningRanges
from octavo.spec.presets import recipe
from tests.graph import families
from tests.methods import tiny

HYPER = Hyperparameters(learning_rate=3e-3, batch_size=16, epochs=2, warmup=0.1, keep="last")
TEXTS = tiny.texts(8, seed=9)[0]


@pytest.fixture(scope="module")
def trained(tiny_classifier: Encoder) -> Encoder:
    encoder = own_copy(tiny_classifier)
    hyper = Hyperparameters(learning_rate=5e-3, batch_size=16, epochs=12, keep="last", hidden_dropout=0.0)
    finetune(encoder, tiny.data(tiny_classifier, 192), hyper)
    return encoder


@pytest.mark.parametrize("name", ["w8a8-qat", "w4a32-qat", "w4a8-qat", "w4a8-e2-qat", "q8bert-qat"])
def test_a_trained_model_is_an_ordinary_saved_model(trained: Encoder, name: str, tmp_path: Path) -> None:
    data = tiny.data(trained, 96)
    before = {key: value.detach().clone() for key, value in trained.graph.named_parameters()}
    model, result = qat(
        trained, recipe(name), data, HYPER, calibration=TEXTS, score=lambda m: tiny.accuracy(m, data)
    )
    assert all(quantizer.state is State.FIX for quantizer in model.quantizers.values())
    assert tiny.accuracy(model, data) == pytest.approx(result.scores[-1])
    assert tiny.accuracy(model, data) > 0.8
    for key, value in trained.graph.named_parameters():
        assert torch.equal(value, before[key]), key
    again = load(str(model.save(tmp_path / "model")))
    batch = next(model.batches(TEXTS))[1]
    assert torch.allclose(again(batch)["logits"], model(batch)["logits"], atol=1e-5)


def test_learned_ranges_move_and_fixed_ones_do_not(trained: Encoder) -> None:
    data = tiny.data(trained, 64)
    cases = ((LearnedRanges(), True), (LearnedRanges(gradient_scaling=True), True), (FixedRanges(), False))
    for training, moves in cases:
        chosen = replace(recipe("w8a8-qat"), passes=(training,))
        start = prepare(trained, chosen, calibration=TEXTS)
        assert bool(learned_ranges(start)) is moves
        model, _ = qat(trained, chosen, data, HYPER, calibration=TEXTS)
        for name in ("layers.1.ffn_residual", "layers.0.query.weight"):
            first = start.quantizers[name]
            assert first.log_scale is not None
            before, after = first.log_scale.detach().exp(), model.quantizers[name].scale
            assert (not torch.allclose(after, before, rtol=1e-6)) is moves, (name, before, after)


def test_running_ranges_follow_activations_and_weights(trained: Encoder) -> None:
    chosen = replace(recipe("q8bert-qat"), passes=(RunningRanges(momentum=0.5),))
    model, _ = qat(trained, chosen, tiny.data(trained, 64), HYPER, calibration=TEXTS)
    weight = model.graph.get_parameter("bert.encoder.layer.0.intermediate.dense.weight")
    found = next(
        q
        for name, q in model.quantizers.items()
        if name.startswith("layers.0.ffn_hidden") and "weight" in name
    )
    assert float(found.scale) == pytest.approx(float(weight.detach().abs().max()) / 127, rel=0.05)


def test_a_killed_training_continues_to_the_same_model(trained: Encoder, tmp_path: Path) -> None:
    data = tiny.data(trained, 64)

    def stop(done: int, total: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    whole, _ = qat(trained, recipe("w8a8-qat"), data, HYPER, calibration=TEXTS)
    with pytest.raises(KeyboardInterrupt):
        options = RunOptions(checkpoint=tmp_path / "c", every=0.0, progress=stop)
        qat(trained, recipe("w8a8-qat"), data, HYPER, calibration=TEXTS, options=options)
    again, result = qat(
        trained,
        recipe("w8a8-qat"),
        data,
        HYPER,
        calibration=TEXTS,
        options=RunOptions(checkpoint=tmp_path / "c"),
    )
    assert result.resumed_at > 0
    for name, quantizer in whole.quantizers.items():
        assert torch.equal(quantizer.scale, again.quantizers[name].scale), name


def test_frozen_sinusoids_stay_and_the_saved_folder_loads(tmp_path: Path) -> None:
    encoder = families.fresh("roformer")
    batch = families.batch((16, 12))
    inputs = tuple(batch.get(name, torch.zeros_like(batch["input_ids"])) for name in encoder.inputs)
    labels = torch.arange(16) % 2
    data = Labelled(inputs=inputs, lengths=torch.full((16,), 12), labels=labels)
    model, _ = qat(encoder, recipe("w8a8-qat"), data, HYPER, calibration=[batch])
    name = "roformer.encoder.embed_positions.weight"
    assert torch.equal(model.graph.get_parameter(name), encoder.graph.get_parameter(name))
    again = load(str(model.save(tmp_path / "model")))
    assert torch.allclose(again(batch)["logits"], model(batch)["logits"], atol=1e-5)


def test_a_checkpoint_of_another_recipe_model_or_calibration_is_refused(
    trained: Encoder, tiny_classifier: Encoder, tiny_data: Labelled, tmp_path: Path
) -> None:
    options = RunOptions(checkpoint=tmp_path / "c")
    hyper = replace(HYPER, epochs=1)
    qat(trained, recipe("w8a8-qat"), tiny_data, hyper, calibration=TEXTS, options=options)
    again = {"calibration": TEXTS, "options": options}
    cases: list[tuple[str, Encoder, str, dict[str, Any]]] = [
        ("recipe", trained, "w4a8-qat", again),
        ("parameters", tiny_classifier, "w8a8-qat", again),
        ("calibration", trained, "w8a8-qat", {**again, "calibration": TEXTS[1:]}),
    ]
    for differs, encoder, name, rest in cases:
        with pytest.raises(OutputError, match=f"the checkpoint of a training with another {differs} "):
            qat(encoder, recipe(name), tiny_data, hyper, **rest)


def test_dynamic_ranges_cannot_be_trained(trained: Encoder, tiny_data: Labelled) -> None:
    with pytest.raises(SpecError, match=r"'q8bert' has dynamic ranges .* training cannot use"):
        qat(trained, recipe("q8bert"), tiny_data, HYPER, calibration=TEXTS)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch's own, while it traces
def test_a_compiled_training_learns_the_same(trained: Encoder) -> None:
    data = tiny.data(trained, 64)
    hyper = replace(HYPER, hidden_dropout=0.0, attention_dropout=0.0)
    plain, first = qat(trained, recipe("w8a8-qat"), data, hyper, calibration=TEXTS)
    compiled, second = qat(
        trained, recipe("w8a8-qat"), data, hyper, calibration=TEXTS, options=RunOptions(compile=True)
    )
    assert second.losses == pytest.approx(first.losses, rel=0.02)
    for name, quantizer in plain.quantizers.items():
        assert torch.allclose(compiled.quantizers[name].scale, quantizer.scale, rtol=0.02), name


def test_a_folded_norm_is_trained_as_one_with_the_norm_it_was_made_of(
    trained: Encoder, tmp_path: Path
) -> None:
    model, _ = qat(trained, recipe("int8"), tiny.data(trained, 64), HYPER, calibration=TEXTS)
    start = prepare(trained, recipe("int8"), calibration=TEXTS)
    finish(start)  # the same model without a step of training
    named = dict(model.graph.named_parameters())
    norm, folded = "bert.embeddings.LayerNorm", "folded.embeddings_norm"
    before = dict(start.graph.named_parameters())
    for part in ("weight", "bias"):
        assert not torch.equal(named[f"{norm}.{part}"], before[f"{norm}.{part}"])
        factor = before[f"{folded}.weight"] / before[f"{norm}.weight"]
        assert torch.allclose(named[f"{folded}.{part}"], named[f"{norm}.{part}"] * factor, rtol=1e-5)
    batch = next(model.batches(TEXTS))[1]
    again = load(str(model.save(tmp_path / "model")))
    assert torch.allclose(again(batch)["logits"], model(batch)["logits"], atol=1e-5)
