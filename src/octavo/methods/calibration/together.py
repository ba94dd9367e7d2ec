"""Several recipes calibrated in one pass over the data.

While ranges are observed, activations pass in float; what they are depends on the quantized weights alone. So
recipes whose weights are quantized alike, in one placement, can watch the same forward passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from octavo.graph import Encoder, QuantizedEncoder, Quantizer, State, attach, fix_weights
from octavo.graph.batches import without_padding
from octavo.graph.quantizers.watch import channel_extremes, probe, watched
from octavo.graph.rewrites.fold import folded_sites
from octavo.methods.calibration.clipping import may_clip, warn_of_clipping
from octavo.methods.calibration.permutation import channel_ranges, permute_groups, permutes
from octavo.methods.pipeline import (
    Calibration,
    Progress,
    batches_of,
    calibrate,
    finish,
    needs_calibration,
    provenance,
    quantize,
)
from octavo.methods.rounding.adaround import put_weight
from octavo.spec import Nearest, Recipe

Batches = Sequence[Mapping[str, Tensor]]


def quantize_together(
    encoder: Encoder,
    recipes: Sequence[Recipe],
    calibration: Calibration,
    *,
    batch_size: int = 1,
    seed: int = 0,
    max_length: int | None = None,
    progress: Progress | None = None,
) -> list[QuantizedEncoder]:
    """The same models as `quantize` makes of the recipes one by one, with as few passes as they allow."""
    options: dict[str, Any] = {"batch_size": batch_size, "seed": seed, "max_length": max_length}
    made: dict[int, QuantizedEncoder] = {}
    waiting: dict[object, list[int]] = {}
    for place, recipe in enumerate(recipes):
        model = _prepared(encoder, recipe)
        if model is None:
            made[place] = quantize(encoder, recipe, calibration, progress=progress, **options)
        else:
            made[place] = model
            waiting.setdefault(_weights_key(model), []).append(place)
    if waiting:
        batches = batches_of(encoder, calibration, batch_size, seed, max_length)
        for places in waiting.values():
            calibrate_together(encoder, [made[place] for place in places], batches, progress)
        for places in waiting.values():
            for place in places:
                made[place].provenance = provenance(encoder, calibration, batch_size, seed)
    return [made[place] for place in range(len(recipes))]


def _prepared(encoder: Encoder, recipe: Recipe) -> QuantizedEncoder | None:
    """A model that only waits for its activation ranges; None where a recipe asks for more, or less."""
    if recipe.integer_functions or not isinstance(recipe.rounding, Nearest):
        return None
    model = attach(encoder, recipe)
    if folded_sites(model):
        return None
    fix_weights(model)
    return model if needs_calibration(model) else None


def _weights_key(model: QuantizedEncoder) -> object:
    specs = {name: q.spec for name, q in model.quantizers.items() if q.site.kind == "weight"}
    return model.recipe.placement, tuple(specs.items())


def calibrate_together(
    encoder: Encoder, models: Sequence[QuantizedEncoder], batches: Batches, progress: Progress | None = None
) -> None:
    """Find the ranges of models with equal quantized weights from the same forward passes, then fix them."""
    if len(models) == 1:
        calibrate(models[0], batches, progress)
        return
    host = _host(encoder, models[0])
    _share_constants(models)
    _permute(host, models, batches)
    observing = [q for model in models for q in model.quantizers.values() if q.state is State.OBSERVE]
    clipping = [{name for name, q in model.quantizers.items() if may_clip(q)} for model in models]
    clippable = {name: host.quantizers[name] for name in sorted(set().union(*clipping))}
    with channel_extremes(clippable) as extremes, _passing_on(host, observing):
        for done, batch in enumerate(batches, start=1):
            for piece in without_padding(batch):
                host(piece)
            for quantizer in observing:
                quantizer.commit()
            if progress is not None:
                progress(done, len(batches))
    for model, names in zip(models, clipping, strict=True):
        finish(model)
        warn_of_clipping(model, {name: extremes[name] for name in names})


def _host(encoder: Encoder, model: QuantizedEncoder) -> QuantizedEncoder:
    """A model with the quantized weights of `model` and a quantizer, turned off, at every site."""
    host = probe(encoder, model.recipe.placement)
    for site in model.weight_sites:
        if site.name in model.quantizers:
            put_weight(host, site, model.quantizers[site.name](model.parameter(site)).detach())
    return host


def _share_constants(models: Sequence[QuantizedEncoder]) -> None:
    """Keep one copy of the quantized weights, which are the same in all models."""
    for model in models[1:]:
        for name, quantizer in model.quantizers.items():
            if quantizer.site.kind == "weight":
                quantizer.keep(models[0].quantizers[name].constant)


def _permute(host: QuantizedEncoder, models: Sequence[QuantizedEncoder], batches: Batches) -> None:
    """Group channels by their ranges, which one pass finds for all models."""
    names = {name for model in models for name, q in model.quantizers.items() if permutes(q)}
    if names:
        ranges = channel_ranges(host, {name: host.quantizers[name] for name in sorted(names)}, batches)
        for model in models:
            permute_groups(model, batches, ranges)


@contextmanager
def _passing_on(host: QuantizedEncoder, quantizers: Sequence[Quantizer]) -> Iterator[None]:
    """Let quantizers observe what passes the host's quantizers of the same sites."""
    observers: dict[str, list[Quantizer]] = {}
    for quantizer in quantizers:
        observers.setdefault(quantizer.site.name, []).append(quantizer)

    def see(at: Quantizer, x: Tensor) -> None:
        for quantizer in observers[at.site.name]:
            quantizer.observe(x)

    with watched({name: host.quantizers[name] for name in observers}, see):
        yield
