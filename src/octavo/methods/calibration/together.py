"""Several recipes calibrated in one pass over the data.

While ranges are observed, activations pass in float; what they are depends on the quantized weights alone. So
recipes whose weights are quantized alike, in one placement, can watch the same forward passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor

from octavo.graph import Encoder, QuantizedEncoder, Quantizer, State
from octavo.graph.quantizers.watch import channel_extremes, probe, watched
from octavo.methods.calibration.clipping import may_clip, warn_of_clipping
from octavo.methods.calibration.permutation import channel_ends, permute_groups, permutes
from octavo.methods.calibration.ranges import calibrate, finish, observe
from octavo.methods.context import Batches
from octavo.progress import Progress, silent


def calibrate_together(
    encoder: Encoder, models: Sequence[QuantizedEncoder], batches: Batches, progress: Progress = silent
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
        observe(host, observing, batches, progress)
    for model, names in zip(models, clipping, strict=True):
        finish(model)
        warn_of_clipping(model, {name: extremes[name] for name in names})


def _host(encoder: Encoder, model: QuantizedEncoder) -> QuantizedEncoder:
    """A model with the quantized weights of `model` and a quantizer, turned off, at every site."""
    host = probe(encoder, model.recipe.placement)
    for site in model.weight_sites:
        if site.name in model.quantizers:
            host.put_weight(site, model.quantizers[site.name](model.parameter(site)).detach())
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
        ends = channel_ends(host, {name: host.quantizers[name] for name in sorted(names)}, batches)
        for model in models:
            permute_groups(model, batches, ends)


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
