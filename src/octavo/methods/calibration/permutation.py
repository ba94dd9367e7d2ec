"""Range-based permutation (section 4): sort embedding dimensions by range, so that outliers share a group.

Groups are even cuts of that order, as in the paper, or those of least expected noise. The paper reads these
ranges from the model in float. Here its weights are quantized already and its activations are float: the
tensors that the groups' own ranges are found on afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from octavo.errors import SpecError
from octavo.graph import QuantizedEncoder, Quantizer, State
from octavo.graph.batches import of_equal_length
from octavo.graph.quantizers.ranges import Layout
from octavo.graph.quantizers.switch import switched_off
from octavo.graph.quantizers.watch import channel_extremes, range_at
from octavo.numerics import AllMinMax
from octavo.numerics.partition import distinct_ranges, optimal_groups

Ends = tuple[Tensor, Tensor]
"""The smallest and the largest value of every channel, (width,) each."""


def permute_groups(
    model: QuantizedEncoder,
    batches: Sequence[Mapping[str, Tensor]],
    ends: Mapping[str, Ends] | None = None,
) -> None:
    """Group the channels of every permuting site by their ranges over *all* calibration batches.

    `ends` are those of every channel by site, where they are known already.
    """
    permuting = {name: q for name, q in model.quantizers.items() if permutes(q) and q.state is State.OBSERVE}
    if not permuting:
        return
    ends = channel_ends(model, permuting, batches) if ends is None else ends
    for names in _sharing(permuting).values():
        sharing = {permuting[name]: ends[name] for name in names}
        if permuting[names[0]].spec.granularity.has_optimal_sizes:
            _cut_optimally(sharing)
        else:
            _cut_evenly(sharing)


def _cut_evenly(sharing: Mapping[Quantizer, Ends]) -> None:
    """Give quantizers groups of one size, channels in the order of the dominant tensor."""
    order = torch.argsort(_dominant([high - low for low, high in sharing.values()]), stable=True)
    for quantizer in sharing:
        quantizer.set_layout(Layout.of(quantizer.site, quantizer.spec, order))


def _cut_optimally(sharing: Mapping[Quantizer, Ends]) -> None:
    """Give quantizers the groups of least noise, summed over their tensors.

    The noise of each counts in units of what it would be with a range for every channel. On
    all-MiniLM-L6-v2 and gte-small that is as good as absolute noise, which cannot compare a norm's output
    with a sum that grows from layer to layer; in units of the noise with one range for the tensor, those that
    suffer most from outliers count least, and 3 groups at every residual sum lose 0.001 in cosine.
    """
    low, high = (
        torch.stack(ends) for ends in zip(*(_on_grid(q, ends) for q, ends in sharing.items()), strict=True)
    )
    index = optimal_groups(low, high, _group_count(list(sharing), low, high))
    for quantizer in sharing:
        quantizer.set_layout(Layout(quantizer.site.channel_axis, index))


def _on_grid(quantizer: Quantizer, ends: Ends) -> Ends:
    """Return the ends of the grid that each channel would have alone, in units of their quadratic mean.

    Every grid holds 0, and a symmetric one reaches as far below it as above.
    """
    low, high = ends[0].double().clamp(max=0), ends[1].double().clamp(min=0)
    if quantizer.spec.symmetric and bool((low < 0).any()):
        reach = torch.maximum(-low, high)
        low, high = -reach, reach
    unit = (high - low).square().mean().sqrt().clamp(min=torch.finfo(torch.float32).tiny)
    return low / unit, high / unit


def _group_count(quantizers: Sequence[Quantizer], low: Tensor, high: Tensor) -> int:
    """Return how many groups to make; more than there are distinct ranges only if the spec says at most."""
    first = quantizers[0]
    granularity = first.spec.granularity
    _, groups = granularity.layout(first.site)
    distinct = distinct_ranges(low, high)
    if groups <= distinct:
        return groups
    if not granularity.takes_fewer:
        others = f" and the {len(quantizers) - 1} sites it shares groups with" if quantizers[1:] else ""
        raise SpecError(
            f"per-group: {groups} groups of optimal sizes asked for {first.site.name}{others}, whose "
            f"channels have {distinct} distinct ranges; use at most {distinct}, or add at_most: true"
        )
    return distinct


def permutes(quantizer: Quantizer) -> bool:
    """Whether a quantizer's channels are to be grouped by their ranges."""
    return quantizer.site.kind == "activation" and quantizer.spec.granularity.permutes


def channel_ranges(
    model: QuantizedEncoder, quantizers: Mapping[str, Quantizer], batches: Sequence[Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Return max - min of every channel, (width,), over all batches, activations in float."""
    found = channel_ends(model, quantizers, batches)
    return {name: high - low for name, (low, high) in found.items()}


def channel_ends(
    model: QuantizedEncoder, quantizers: Mapping[str, Quantizer], batches: Sequence[Mapping[str, Tensor]]
) -> dict[str, Ends]:
    """Return minimum and maximum of every channel over all batches, activations in float."""
    activations = [q for q in model.quantizers.values() if q.site.kind == "activation"]
    with channel_extremes(quantizers) as extremes, switched_off(activations):
        for batch in of_equal_length(batches):
            model(batch)
    return {name: _ends(name, estimator) for name, estimator in extremes.items()}


def _ends(name: str, estimator: AllMinMax) -> Ends:
    minimum, maximum = range_at(name, estimator)
    return minimum.cpu(), maximum.cpu()


def _sharing(quantizers: Mapping[str, Quantizer]) -> dict[object, list[str]]:
    """Sites that share one permutation: those of a layer and width, unless the spec says `shared: false`.

    Optimal sizes are found with the order, so sites share them only where they ask for the same groups.
    """
    groups: dict[object, list[str]] = {}
    for name, quantizer in quantizers.items():
        site, granularity = quantizer.site, quantizer.spec.granularity
        part = name.rpartition(".")[0] if site.layer is None else f"layers.{site.layer}"
        cut = granularity if granularity.has_optimal_sizes else None
        groups.setdefault((part, site.width, cut) if granularity.shares_order else name, []).append(name)
    return groups


def extra_parameters(model: QuantizedEncoder) -> int:
    """How many numbers groups of embedding dimensions need: d + 2·3·K a layer with the paper's recipe.

    That is a permutation of d dimensions, once for the sites that share it, and scale and zero-point of every
    group at every site (symmetric groups need no zero-point).
    """
    grouped = {name: q for name, q in model.quantizers.items() if _is_grouped(q)}
    ranges = sum(q.scale.numel() * (1 if q.spec.symmetric else 2) for q in grouped.values())
    permuted = {name: q for name, q in grouped.items() if permutes(q)}
    return ranges + sum(permuted[names[0]].site.width or 0 for names in _sharing(permuted).values())


def _is_grouped(quantizer: Quantizer) -> bool:
    """Say whether embedding dimensions have ranges of their own, alone or in groups."""
    return quantizer.site.kind == "activation" and quantizer.axis == quantizer.site.channel_axis


def _dominant(ranges: Sequence[Tensor]) -> Tensor:
    """The ranges of the tensor whose outliers stand out most: largest range over median range, (width,).

    On all-MiniLM-L6-v2 with six groups this keeps a cosine of 0.958; the tensor with the largest range in
    absolute terms keeps 0.934, and one permutation for each tensor 0.941.
    """
    return max(ranges, key=lambda r: float(r.max() / r.median().clamp(min=torch.finfo(r.dtype).tiny)))
