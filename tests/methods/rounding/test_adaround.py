from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from octavo.errors import CalibrationError, OctavoWarning, OutputError, SpecError
from octavo.graph import Encoder, QuantizedEncoder, attach, fix_weights
from octavo.graph.batches import of_equal_length
from octavo.graph.relay import Relay
from octavo.methods import load, quantize
from octavo.methods.rounding.adaround import round_weights
from octavo.methods.rounding.moments import input_moments
from octavo.spec import AdaRound, Override, Recipe
from octavo.spec.presets import recipe
from tests.graph import families

FEW = AdaRound(iterations=40)
RECIPE = replace(recipe("w4a32-adaround"), passes=(FEW,))
BATCHES = [families.batch((6, 12), padded=True, seed=seed) for seed in range(4)]


@pytest.fixture(scope="module")
def bert() -> Encoder:
    return families.captured("bert")[1]


@pytest.fixture(scope="module")
def rounded(bert: Encoder) -> QuantizedEncoder:
    return quantize(bert, RECIPE, BATCHES)


def attached(encoder: Encoder, chosen: Recipe = RECIPE) -> QuantizedEncoder:
    model = attach(encoder, chosen)
    fix_weights(model)
    return model


def output_error(model: QuantizedEncoder, encoder: Encoder) -> float:
    """Return the mean squared error of the first output on data that rounding did not see."""
    batch, name = families.batch((8, 16), seed=9), encoder.output_names[0]
    return float((model(batch)[name] - encoder(batch)[name]).square().mean())


def weights(model: QuantizedEncoder) -> dict[str, Tensor]:
    return {site.name: model.parameter(site).detach().clone() for site in model.weight_sites}


def test_it_changes_outputs_less_than_rounding_to_nearest(bert: Encoder, rounded: QuantizedEncoder) -> None:
    nearest = quantize(bert, recipe("w4a32"))
    assert output_error(rounded, bert) < 0.7 * output_error(nearest, bert)


def test_saved_integers_are_the_chosen_ones(bert: Encoder, rounded: QuantizedEncoder, tmp_path: Path) -> None:
    model = rounded
    batch = families.batch((3, 9))
    model.save(tmp_path / "saved")
    assert torch.equal(load(tmp_path / "saved")(batch)["logits"], model(batch)["logits"])
    nearest = quantize(bert, recipe("w4a32"))
    site = next(site for site in model.weight_sites if site.name == "layers.0.query.weight")
    chosen, plain = (each.quantizers[site.name].integers(each.parameter(site)) for each in (model, nearest))
    assert int((chosen - plain).abs().max()) == 1


def test_two_runs_choose_the_same_and_leave_the_float_model_alone(
    bert: Encoder, rounded: QuantizedEncoder
) -> None:
    batch = families.batch((3, 9))
    before = bert(batch)["logits"]
    first, second = weights(rounded), weights(quantize(bert, RECIPE, BATCHES))
    assert torch.equal(bert(batch)["logits"], before)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_norms_are_left_to_nearest(bert: Encoder, rounded: QuantizedEncoder) -> None:
    before, after = weights(attached(bert)), weights(rounded)
    assert torch.equal(before["layers.0.ffn_input.weight"], after["layers.0.ffn_input.weight"])


def test_activations_are_calibrated_afterwards(bert: Encoder) -> None:
    model = quantize(bert, replace(recipe("w8a8"), passes=(FEW,)), BATCHES)
    assert all(quantizer.has_range for quantizer in model.quantizers.values())


def test_moments_are_those_of_the_unpadded_rows(bert: Encoder) -> None:
    model = attached(bert)
    seen: list[Tensor] = []
    node = next(n for n in model.graph.graph.nodes if n.name == _linear_of(model, "layers.1.query.weight"))
    rows = of_equal_length(BATCHES)
    own = input_moments(*(Relay(each, rows) for each in (model, bert)), [node.name]).own
    for batch in BATCHES:
        ids, mask = batch["input_ids"], batch["attention_mask"]
        for row in range(len(ids)):
            length = int(mask[row].sum())
            seen.append(_input_of(model, node.args[0].name, ids[row : row + 1, :length]))
    x = torch.cat(seen).double()
    torch.testing.assert_close(own, x.T @ x / len(x), rtol=1e-4, atol=1e-4)


def _linear_of(model: QuantizedEncoder, site: str) -> str:
    label = site.replace(".", "_")
    call = next(n for n in model.graph.graph.nodes if n.target == f"quantizers.{label}")
    return str(next(iter(call.users)))


def _input_of(model: QuantizedEncoder, node: str, ids: Tensor) -> Tensor:
    from octavo.methods.rounding.moments import part_of

    with torch.no_grad():
        (found,) = part_of(model.graph, [node])(*model.arguments({"input_ids": ids}))
    return found.reshape(-1, found.shape[-1])


def test_progress_ends_complete_and_never_falls(bert: Encoder) -> None:
    calls: list[tuple[int, int]] = []
    quantize(bert, RECIPE, BATCHES, progress=lambda done, total: calls.append((done, total)))
    done = [call[0] for call in calls]
    assert done == sorted(done) and calls[-1][0] == calls[-1][1] and len({call[1] for call in calls}) == 1


# -- interruption --------------------------------------------------------------------------------------------


class _Stopped(Exception):
    pass


def _stop_halfway(done: int, total: int) -> None:
    if done > total // 2:
        raise _Stopped


@pytest.fixture(scope="module")
def interrupted(bert: Encoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adaround") / "work"
    with pytest.raises(_Stopped):
        quantize(bert, RECIPE, BATCHES, work=folder, progress=_stop_halfway)
    return folder


@pytest.fixture
def begun(interrupted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(interrupted, tmp_path / "work"))


def test_an_interrupted_run_goes_on_to_the_same_result(
    bert: Encoder, rounded: QuantizedEncoder, begun: Path
) -> None:
    kept = {file: file.stat().st_mtime_ns for file in begun.glob("*.safetensors")}
    assert kept
    whole, resumed = weights(rounded), weights(quantize(bert, RECIPE, BATCHES, work=begun))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    assert all(file.stat().st_mtime_ns == when for file, when in kept.items())


def test_other_settings_are_refused(bert: Encoder, begun: Path) -> None:
    other = replace(RECIPE, passes=(AdaRound(iterations=41),))
    with pytest.raises(
        OutputError, match=r"with another iterations \(iterations: 40, now 41\); give another folder"
    ):
        quantize(bert, other, BATCHES, work=begun)


def test_other_data_is_refused(bert: Encoder, begun: Path) -> None:
    with pytest.raises(OutputError, match=r"with another data \(data: .* give another folder"):
        quantize(bert, RECIPE, BATCHES[:2], work=begun)


def test_a_folder_with_other_things_is_refused(bert: Encoder, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match="holds other files"):
        quantize(bert, RECIPE, BATCHES, work=tmp_path)


def test_a_broken_file_is_made_again(bert: Encoder, rounded: QuantizedEncoder, begun: Path) -> None:
    file = sorted(begun.glob("*.safetensors"))[0]
    file.write_bytes(b"nonsense")
    whole, resumed = weights(rounded), weights(quantize(bert, RECIPE, BATCHES, work=begun))
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


# -- bad input -----------------------------------------------------------------------------------------------


def test_no_data_is_an_error(bert: Encoder) -> None:
    with pytest.raises(CalibrationError, match="'w4a32-adaround' rounds weights with AdaRound; give"):
        quantize(bert, RECIPE)
    with pytest.raises(CalibrationError, match="rounds weights with AdaRound; give"):
        round_weights(attached(bert), [], FEW)


def test_a_recipe_without_linear_weights_is_an_error(bert: Encoder) -> None:
    off = replace(RECIPE, overrides=(Override(roles=("linear_weight",), off=True),))
    with pytest.raises(SpecError, match="quantizes no linear layer"):
        quantize(bert, off, BATCHES)


@pytest.mark.parametrize("family", ["albert", pytest.param("roberta", marks=pytest.mark.slow)])
def test_other_families_round_too(family: str) -> None:
    encoder = families.captured(family, "encoder")[1]
    nearest, rounded = quantize(encoder, recipe("w4a32")), quantize(encoder, RECIPE, BATCHES)
    assert output_error(rounded, encoder) < output_error(nearest, encoder)


def test_weights_of_other_layers_are_named_and_left_to_nearest() -> None:
    encoder = families.captured("squeezebert")[1]
    with pytest.warns(OctavoWarning, match="to nearest: something else than a linear layer reads it"):
        quantize(encoder, RECIPE, BATCHES)


def test_without_flips_other_weights_are_chosen(bert: Encoder, rounded: QuantizedEncoder) -> None:
    chosen = replace(RECIPE, passes=(replace(FEW, flips=False),))
    first, second = weights(rounded), weights(quantize(bert, chosen, BATCHES))
    assert any(not torch.equal(first[name], second[name]) for name in first)


def test_a_folder_of_a_run_from_before_flips_were_an_option_goes_on(bert: Encoder, tmp_path: Path) -> None:
    model = attached(bert)
    assert round_weights(model, BATCHES, FEW, work=tmp_path / "work") != {}
    about = json.loads((tmp_path / "work" / "about.json").read_text(encoding="utf-8"))
    assert "flips" not in about
    assert round_weights(attached(bert), BATCHES, FEW, work=tmp_path / "work") == {}
    with pytest.raises(OutputError, match="flips"):
        round_weights(attached(bert), BATCHES, replace(FEW, flips=False), work=tmp_path / "work")
