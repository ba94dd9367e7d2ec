"""What must hold on a GPU too: run with `-m gpu`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from octavo.graph import Encoder
from octavo.methods import load, quantize
from octavo.spec import AllMinMax, Mse, Override, Percentile, PerGroup, PerToken, Recipe, TensorSpec
from octavo.spec.presets import PRESETS
from tests.graph import families

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
]
FFN = ("layers.*.ffn_input", "layers.*.ffn_output", "layers.*.ffn_residual")
BATCH = families.batch((4, 12), padded=True)
RECIPES = {
    "all": Recipe(
        name="all", weights=TensorSpec(symmetric=True), activations=TensorSpec(estimator=AllMinMax())
    ),
    "estimators": Recipe(
        name="estimators",
        weights=TensorSpec(bits=4, symmetric=True, estimator=Mse()),
        activations=TensorSpec(estimator=Percentile()),
        overrides=(Override(sites=("layers.0.*",), estimator=Mse()),),
    ),
    "permuted": Recipe(
        name="permuted",
        weights=TensorSpec(symmetric=True),
        activations=TensorSpec(estimator=AllMinMax()),
        overrides=(Override(sites=FFN, granularity=PerGroup(groups=5, permute=True)),),
    ),
    "dynamic": Recipe(
        name="dynamic",
        weights=TensorSpec(symmetric=True),
        activations=TensorSpec(dynamic=True),
        overrides=(Override(sites=("layers.*.ffn_hidden",), granularity=PerToken()),),
    ),
}


@pytest.fixture(scope="module")
def on_gpu() -> Encoder:
    return families.fresh("bert").to("cuda")


def test_outputs_are_close_to_those_of_the_cpu(on_gpu: Encoder, bert: Encoder) -> None:
    assert torch.allclose(on_gpu(BATCH)["logits"].cpu(), bert(BATCH)["logits"], atol=1e-4)


@pytest.mark.parametrize("name", RECIPES)
def test_every_kind_of_range_is_found_saved_and_loaded(
    on_gpu: Encoder, bert: Encoder, name: str, tmp_path: Path
) -> None:
    model = quantize(on_gpu, RECIPES[name], [BATCH])
    reference = quantize(bert, RECIPES[name], [BATCH])
    for site, quantizer in model.quantizers.items():
        assert torch.allclose(quantizer.scale.cpu(), reference.quantizers[site].scale, rtol=0.02), site
    loaded = load(model.save(tmp_path / "model"), device="cuda")
    assert torch.equal(loaded(BATCH)["logits"], model(BATCH)["logits"])


def test_a_quantized_model_moves_without_the_float_one() -> None:
    encoder = families.fresh("bert")
    model = quantize(encoder, RECIPES["permuted"], [BATCH])
    before = model(BATCH)["logits"]
    moved = model.to("cuda")(BATCH)["logits"].cpu()
    assert torch.allclose(moved, before, atol=0.05)
    assert encoder(BATCH)["logits"].device.type == "cpu"


def test_learning_takes_gradients(on_gpu: Encoder) -> None:
    model = quantize(on_gpu, RECIPES["permuted"], [BATCH])
    model.set_state("*", "learn")
    model.graph.train()
    model.graph(*model.arguments(BATCH))[0].square().sum().backward()
    assert all(q.log_scale is not None and q.log_scale.grad is not None for q in model.quantizers.values())


@pytest.mark.filterwarnings("ignore::octavo.errors.OctavoWarning")  # few texts for GPTQ, no outliers to spill
@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_gives_what_it_gives_on_the_cpu(on_gpu: Encoder, bert: Encoder, name: str) -> None:
    batches = [families.batch((4, 12), padded=True, seed=seed) for seed in range(4)]
    found = quantize(on_gpu, PRESETS[name], batches)(BATCH)["logits"].cpu()
    expected = quantize(bert, PRESETS[name], batches)(BATCH)["logits"]
    assert torch.nn.functional.cosine_similarity(found, expected).min() > 0.98
