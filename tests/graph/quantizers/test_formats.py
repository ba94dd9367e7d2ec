from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import octavo
from octavo.errors import SavedModelError, SpecError
from octavo.graph import Encoder
from octavo.graph.quantizers.ranges import FLOATS
from octavo.methods import quantize
from octavo.spec import (
    E4M3,
    E5M2,
    AdaRound,
    AllMinMax,
    ClipTokens,
    Format,
    Granularity,
    IntegerFunctions,
    Override,
    PerChannel,
    PerEmbedding,
    PerGroup,
    PerTensor,
    PerToken,
    SplitGroups,
    TensorSpec,
    TuneRanges,
)
from octavo.spec.presets import recipe
from tests.graph import families

BATCHES = [families.batch((3, 12), padded=True, seed=seed) for seed in range(4)]
FULL = recipe("fp8-full")


@pytest.fixture(scope="module")
def bert() -> Encoder:
    return families.captured("bert")[1]


def outputs(model: Encoder) -> torch.Tensor:
    return model(BATCHES[0])["logits"]


def test_every_floating_point_format_computes() -> None:
    missing = [kind.__name__ for kind in Format.variants().values() if kind.is_float and kind not in FLOATS]
    assert not missing, f"octavo.graph.quantizers.ranges.FLOATS lacks {missing}"


def test_a_quantizer_rounds_as_torchs_cast_does(bert: Encoder) -> None:
    model = quantize(bert, FULL, BATCHES)
    quantizer = model.quantizers["layers.0.ffn_output.weight"]
    weight = model.parameter(next(s for s in model.weight_sites if s.name == quantizer.site.name)).detach()
    scale = (weight.abs().amax(1, keepdim=True).double() / 448).float()
    expected = (weight / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale
    assert torch.equal(quantizer(weight), expected)


GRANULARITIES = [PerTensor(), PerEmbedding(), PerGroup(groups=4), PerGroup(groups=4, permute=True)]


@pytest.mark.parametrize("granularity", GRANULARITIES, ids=str)
@pytest.mark.parametrize("format", [E4M3(), E5M2()], ids=lambda f: f.variant_name)
def test_saved_models_load_bit_for_bit_with_a_byte_a_weight(
    bert: Encoder, tmp_path: Path, granularity: Granularity, format: Format
) -> None:
    spec = TensorSpec(symmetric=True, estimator=AllMinMax(), format=format)
    chosen = replace(
        FULL,
        weights=replace(spec, granularity=PerChannel()),
        activations=spec,
        overrides=(*FULL.overrides, Override(roles=("ffn_input", "ffn_output"), granularity=granularity)),
    )
    model = quantize(bert, chosen, BATCHES)
    loaded = octavo.load(model.save(tmp_path / "saved"))
    assert torch.equal(outputs(loaded), outputs(model))
    assert (outputs(model) - outputs(bert)).abs().max() < 0.1
    from safetensors.torch import load_file

    stored = load_file(tmp_path / "saved" / "model.safetensors")
    site = next(s for s in model.weight_sites if s.role == "linear_weight")
    assert stored[site.targets[0]].dtype == torch.uint8
    assert stored[site.targets[0]].numel() == model.parameter(site).numel()


@pytest.mark.parametrize("granularity", [PerTensor(), PerToken()], ids=str)
def test_dynamic_ranges(bert: Encoder, granularity: Granularity, tmp_path: Path) -> None:
    spec = TensorSpec(symmetric=True, format=E4M3(), dynamic=True, granularity=granularity)
    model = quantize(bert, replace(FULL, activations=spec))
    assert 0 < (outputs(model) - outputs(bert)).abs().max() < 0.1
    assert torch.equal(outputs(octavo.load(model.save(tmp_path / "saved"))), outputs(model))


def test_a_saved_grid_of_another_format_is_refused(bert: Encoder, tmp_path: Path) -> None:
    folder = quantize(bert, FULL, BATCHES).save(tmp_path / "saved")
    manifest = folder / "octavo.json"
    manifest.write_text(manifest.read_text().replace('"high": 448', '"high": 447'))
    with pytest.raises(SavedModelError, match="a saved grid from -448 to 447, and its format goes from -448"):
        octavo.load(folder)


@pytest.mark.parametrize("entry", [ClipTokens(texts=4), TuneRanges(steps=4, batch_size=2)], ids=str)
def test_ranges_are_clipped_and_learned(
    bert: Encoder, entry: ClipTokens | TuneRanges, tmp_path: Path
) -> None:
    model = quantize(bert, replace(FULL, passes=(entry,)), BATCHES)
    assert torch.equal(outputs(octavo.load(model.save(tmp_path / "saved"))), outputs(model))


def test_groups_can_be_split(bert: Encoder) -> None:
    groups = Override(roles=("ffn_input", "ffn_output", "ffn_residual"), granularity=PerGroup(groups=2))
    whole = quantize(bert, replace(FULL, overrides=(*FULL.overrides, groups)), BATCHES)
    split = quantize(bert, replace(whole.recipe, passes=(SplitGroups(),)), BATCHES)
    assert (outputs(split) - outputs(whole)).abs().max() < 0.02


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (AdaRound(iterations=5), r"weight has the format e4m3, and AdaRound works on integers"),
        (IntegerFunctions(), r"has the format e4m3, and integer-functions works on integers"),
    ],
    ids=["adaround", "integer-functions"],
)
def test_passes_on_integers_refuse_it(
    bert: Encoder, entry: AdaRound | IntegerFunctions, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        quantize(bert, replace(FULL, passes=(entry,)), BATCHES)


@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_export_to_a_cpu_is_refused(bert: Encoder, backend: str, tmp_path: Path) -> None:
    model = quantize(bert, recipe("fp8"), BATCHES)
    with pytest.raises(SpecError, match="more are simulated in e4m3, in which no CPU kernel computes"):
        octavo.export(model, tmp_path / "model.onnx", backend=backend)
    assert not (tmp_path / "model.onnx").exists()


def test_encodings_are_refused(bert: Encoder, tmp_path: Path) -> None:
    from octavo.runtime.encoding_files import write_encodings

    with pytest.raises(SpecError, match="simulated in e4m3"):
        write_encodings(quantize(bert, recipe("fp8"), BATCHES), tmp_path / "encodings.json")


def test_gradients_pass_a_fixed_quantizer(bert: Encoder) -> None:
    quantizer = quantize(bert, FULL, BATCHES).quantizers["layers.0.ffn_output"]
    x = torch.tensor([[[0.01, 1e6]]], requires_grad=True)
    y = quantizer(x)
    assert torch.equal(y, quantizer(x.detach()))
    y.sum().backward()
    assert x.grad is not None and x.grad.flatten().tolist() == [1, 0]
