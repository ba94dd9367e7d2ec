"""Spilling: the smallest range of an activation that a few extra channels allow, by its channels' ranges."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor

from octavo.errors import OctavoWarning, SpecError
from octavo.graph import QuantizedEncoder, Quantizer
from octavo.graph.batches import of_equal_length
from octavo.graph.quantizers.switch import switched_off
from octavo.graph.quantizers.watch import channel_extremes, range_at
from octavo.graph.rewrites.reach import spillable
from octavo.graph.rewrites.sharing import connected
from octavo.graph.rewrites.spill import is_spilled, spill
from octavo.methods.context import Context
from octavo.numerics.spill import Pieces, smallest_range
from octavo.spec import Spill
from octavo.spec.granularity import axis_size

_MANY = 0.1
"""More channels than this never come within a twentieth of one end by chance."""


def run(model: QuantizedEncoder, done: Spill, context: Context) -> QuantizedEncoder:
    """Spill the pass's sites, ranges taken over *all* batches; a site that would gain little stays.

    Sites whose weights are shared (layers that share parameters) spill alike.
    """
    asked = _asked(model, done)
    reaches = spillable(model, asked)
    rest = [name for name in asked if name not in reaches]
    if rest and not reaches and not done.optional:
        raise SpecError(
            f"spill: none of its {len(rest)} sites can spill, as something other than linear layers makes or "
            "reads them, or their weights are shared with layers that read other tensors (the first is "
            f"{rest[0]}); take the pass out or say optional: true, and give them groups or more bits"
        )
    if rest:
        warnings.warn(
            f"{len(rest)} sites do not spill, as something other than linear layers makes or reads them, or "
            f"their weights are shared with layers that read other tensors (the first is {rest[0]}); skip "
            "them, or give them groups or more bits",
            OctavoWarning,
            stacklevel=2,
        )
    with channel_extremes({name: asked[name] for name in reaches}) as extremes:
        with switched_off(model.quantizers.values()):
            for batch in of_equal_length(context.batches):
                model(batch)
    pieces: dict[str, Pieces] = {}
    for names in connected((name, reach.parameters) for name, reach in reaches.items()):
        ranges = [range_at(name, extremes[name]) for name in names]
        minimum = _with_margin(torch.stack([low for low, _ in ranges]).amin(0), done.margin)
        maximum = -_with_margin(-torch.stack([high for _, high in ranges]).amax(0), done.margin)
        spec = asked[names[0]].spec
        found = smallest_range(minimum, maximum, _extra(done, len(minimum)), spec.bits, spec.symmetric)
        if found is not None:
            pieces |= dict.fromkeys(names, found)
    return spill(model, done, {name: pieces[name] for name in asked if name in pieces})


def replay(model: QuantizedEncoder, done: Spill, saved: Mapping[str, Tensor]) -> QuantizedEncoder:
    """Rewrite a model at the sites that were spilled; its parameters are still to be loaded."""
    pieces = {}
    for name, quantizer in _asked(model, done).items():
        extra = is_spilled(name, saved) - (quantizer.site.width or 0)
        if extra > 0:
            none = torch.zeros(extra, dtype=torch.float64)
            pieces[name] = Pieces(low=0.0, high=0.0, source=none.long(), offset=none, rest=none)
    return spill(model, done, pieces)


def _with_margin(minimum: Tensor, margin: float) -> Tensor:
    """Return minima with room below them; none where all channels end alike, as an activation function does.

    GELU never goes below -0.17 and half of its channels reach that: no text to come will go further.
    """
    lowest = minimum.min()
    bounded = (minimum < 0.95 * lowest).float().mean() > _MANY
    return minimum if bounded else minimum * margin


def _extra(done: Spill, width: int) -> int:
    """Return how many channels may be added: a multiple of 8, which kernels like, and at least 8."""
    return max(8, round(done.share * width / 8) * 8)


def _asked(model: QuantizedEncoder, done: Spill) -> dict[str, Quantizer]:
    """Return the activation quantizers that the pass names; what it cannot mean is an error."""
    activations = {name: q for name, q in model.quantizers.items() if q.site.kind == "activation"}
    asked = {name: q for name, q in activations.items() if done.applies(name, q.site.role)}
    for name, quantizer in asked.items():
        axis_size(quantizer.site, quantizer.site.channel_axis, done.variant_name)
        if not quantizer.spec.granularity.has_one_scale or quantizer.spec.dynamic:
            kind = "dynamic" if quantizer.spec.dynamic else quantizer.spec.granularity.variant_name
            raise SpecError(
                f"spill: {name} has {kind} ranges, and what spills over needs one static range for all "
                "channels; use per-tensor there, or skip it"
            )
        if any(
            isinstance(entry, Spill) and entry.applies(name, quantizer.site.role) for entry in model.passes
        ):
            raise SpecError(f"spill: two passes name {name}; let one of them skip it")
    return asked
