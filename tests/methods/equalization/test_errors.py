"""The error that the search estimates from samples, against what the layers really do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from octavo.graph import attach
from octavo.graph.rewrites.channels import Channels, channels_of
from octavo.graph.rewrites.fold import Change
from octavo.methods.equalization.errors import Costs, _Layer, on_grid
from octavo.methods.equalization.observing import observe
from octavo.numerics.mse import mse_range
from octavo.spec import Mse, PerChannel, TensorSpec
from octavo.spec.presets import recipe
from tests.graph import families

BATCHES = [families.batch((4, 12), seed=seed) for seed in range(3)]
_, BERT = families.captured("bert")
MODEL = attach(BERT, replace(recipe("int8"), passes=()))


def costs(site: str) -> tuple[Channels, Costs, Costs]:
    channels = channels_of(MODEL, site)
    sizes = {name: len(index) for name, index in channels.sites.items()}
    seen = observe(MODEL, sizes, BATCHES, tokens=10**4, seed=0)
    return channels, *(Costs(MODEL, channels, seen, half) for half in (0, 1))  # type: ignore[return-value]


@pytest.mark.parametrize("shifted", [False, True], ids=["scaled", "shifted"])
def test_the_error_of_a_layer_is_that_of_its_rounded_input_and_weight(shifted: bool) -> None:
    """Brute force in float64: the layer's output with both on their grids, against the exact one."""
    channels, first, _ = costs("layers.0.ffn_input")
    generator = torch.Generator().manual_seed(0)
    factor = torch.rand(channels.width, generator=generator) + 0.5
    shift = torch.randn(channels.width, generator=generator) if shifted else torch.zeros(channels.width)
    weight = MODEL.graph.get_parameter(channels.readers[0].weight).detach()
    x = first.samples["layers.0.ffn_input"]
    low, high = ((end - shift) / factor for end in first.extremes["layers.0.ffn_input"])
    quantizer = MODEL.quantizers["layers.0.ffn_input"]
    rounded = on_grid((x - shift) / factor, quantizer, low.min(), high.max()).double()
    scale = (weight * factor).abs().amax(1, keepdim=True) / 127
    columns = ((weight * factor) / scale).round().mul(scale).double()
    exact = x.double() @ weight.double().T
    found = rounded @ columns.T + weight.double() @ shift.double()
    size = exact.square().sum(1)
    expected = ((found - exact).square().sum(1) / size.clamp(min=size.median())).mean()
    change = Change(factor, shift if shifted else None)
    assert first.of(change) == pytest.approx(float(expected), rel=0.02)


def test_outputs_of_a_layer_that_are_measured_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    _, all_outputs, _ = costs("layers.0.ffn_input")
    monkeypatch.setattr("octavo.methods.equalization.errors.OUTPUTS", 32)
    _, half_of_them, _ = costs("layers.0.ffn_input")
    change = Change(torch.ones(32))
    assert half_of_them.of(change) == pytest.approx(all_outputs.of(change), rel=0.3)


def test_the_error_of_scores_is_that_of_rounded_queries_and_keys() -> None:
    """Brute force: every query with every key, what is the same for all keys of a query taken away."""
    channels, first, _ = costs("layers.0.query")
    change = Change(torch.full((channels.width,), 2.0))
    q, k = (first.samples[f"layers.0.{name}"].double() for name in ("query", "key"))
    factors = {"query": 2.0, "key": 0.5}
    noisy = {}
    for name, tensor in (("query", q), ("key", k)):
        low, high = (end / factors[name] for end in first.extremes[f"layers.0.{name}"])
        quantizer = MODEL.quantizers[f"layers.0.{name}"]
        noisy[name] = on_grid(tensor.float() / factors[name], quantizer, low.min(), high.max()).double()
    errors = noisy["query"] @ noisy["key"].T - q @ k.T
    errors = errors - errors.mean(1, keepdim=True)
    assert first.of(change) == pytest.approx(float(errors.square().mean()), rel=0.3)


def test_ranges_come_from_the_other_half_of_the_texts() -> None:
    _, first, second = costs("layers.0.ffn_input")
    site = "layers.0.ffn_input"
    low, high = first.extremes[site]
    assert bool((second.samples[site] <= high + 1e-6).all() and (second.samples[site] >= low - 1e-6).all())
    assert not bool((first.samples[site] <= high).all() and (first.samples[site] >= low).all())


def test_weights_whose_estimator_clips_are_rounded_as_it_would() -> None:
    """Factors make one column large; a range by the MSE cuts it off, and the error has to show that."""
    weights = TensorSpec(bits=4, symmetric=True, granularity=PerChannel(), estimator=Mse())
    model = attach(BERT, replace(recipe("int8"), weights=weights, passes=()))
    channels = channels_of(model, "layers.0.ffn_input")
    layer = _Layer(model, channels.readers[0])
    factor = torch.ones(channels.width)
    factor[3] = 6.0
    weight = layer.weight * factor
    low, high = mse_range(weight, torch.arange(len(weight)), bits=4, symmetric=True)
    found = layer.rounded(torch.eye(channels.width), factor).T
    assert layer.quantizer is not None
    best = on_grid(weight, layer.quantizer, low[:, None], high[:, None])
    assert float((found - weight).square().sum()) == pytest.approx(
        float((best - weight).square().sum()), rel=0.1
    )
