"""Equalization passes: which channels, by how much, and the rewrite; replayed when a model is loaded."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor

from octavo.errors import OctavoWarning, SpecError
from octavo.graph import QuantizedEncoder, Quantizer
from octavo.graph.rewrites.channels import Channels
from octavo.graph.rewrites.fold import fold, is_folded, refold
from octavo.graph.rewrites.sharing import channels_at, groups_of
from octavo.methods.context import Context
from octavo.methods.equalization.candidates import Candidate, Ranges, ranges_of
from octavo.methods.equalization.errors import Costs, cost, quantizer_of
from octavo.methods.equalization.observing import HALVES, Observed, observe
from octavo.spec import Equalization, Equalize, Fold, MigrateGamma, ShiftAndScale, SmoothQuant
from octavo.spec.granularity import axis_size

Group = Sequence[Channels]
_FEWEST_BITS = 6
"""Of weights that may read what is shifted: at 4 bits gte-small keeps 0.988 without shifts, 0.830 with."""


def run(model: QuantizedEncoder, done: Equalization, context: Context) -> QuantizedEncoder:
    """Change the channels of the pass's sites as it says, ranges taken over *all* batches.

    Channels that share weights share their factors. Sites whose factors cannot go into weights keep one range
    for all dimensions, with a warning.
    """
    groups = _groups(model, done)
    sites = {name: len(index) for g in groups for channels in g for name, index in channels.sites.items()}
    seen = observe(model, sites, context.batches, getattr(done, "tokens", 2), context.seed) if sites else {}
    changes = []
    for group in groups:
        chosen = _choose(model, done, group, seen)
        if chosen.way != "nothing" or chosen.shift:
            changes.append((group, chosen.make(ranges_of(model, group, seen))))
    return fold(model, done, changes)


def replay(model: QuantizedEncoder, done: Equalization, saved: Mapping[str, Tensor]) -> QuantizedEncoder:
    """Rewrite a model as it was; its norms and weights are still to be loaded.

    The saved tensors say which sites were changed, also where an earlier version changed more than is right.
    """
    found, _ = channels_at(model, _asked(model, done))
    return refold(model, done, [channels for channels in found if is_folded(channels, saved)], saved)


# -- which ---------------------------------------------------------------------------------------------------


def _groups(model: QuantizedEncoder, done: Equalization) -> list[list[Channels]]:
    """Return the channels that a pass names, in groups that share factors; refuse what it cannot mean."""
    asked = _asked(model, done)
    groups, refused = groups_of(model, asked)
    for channels in (channels for group in groups for channels in group):
        _check_free(model, done, channels)
        if isinstance(done, ShiftAndScale) and done.shift and not channels.shifts:
            raise SpecError(
                f"{done.variant_name}: no norm and no linear layer can take a shift of "
                f"{next(iter(channels.sites))}; skip it, or say shift: false"
            )
    if isinstance(done, MigrateGamma):
        refused |= {s: "no norm makes it" for g in groups for c in g if c.norm is None for s in c.sites}
        groups = [group for group in groups if all(channels.norm is not None for channels in group)]
    rest = [name for name in asked if name in refused]
    if rest and not groups and not done.optional:
        raise SpecError(
            f"{done.variant_name}: none of its {len(rest)} sites can be folded (the first is {rest[0]}: "
            f"{refused[rest[0]]}); take the pass out or say optional: true, and give them groups or more bits"
        )
    if rest:
        warnings.warn(
            f"{len(rest)} sites are not folded (the first is {rest[0]}: {refused[rest[0]]}) and keep one "
            "range for all channels; where too much is lost, give them more bits",
            OctavoWarning,
            stacklevel=2,
        )
    return groups


def _asked(model: QuantizedEncoder, done: Equalization) -> dict[str, Quantizer]:
    """Return the activation quantizers that the pass names."""
    activations = {name: q for name, q in model.quantizers.items() if q.site.kind == "activation"}
    asked = {name: q for name, q in activations.items() if done.applies(name, q.site.role)}
    for quantizer in asked.values():
        axis_size(quantizer.site, quantizer.site.channel_axis, done.variant_name)
        _check_granularity(done, quantizer)
    return asked


def _check_granularity(done: Equalization, quantizer: Quantizer) -> None:
    granularity = quantizer.spec.granularity
    if not (granularity.has_one_scale or granularity.is_per_token):
        raise SpecError(
            f"{done.variant_name}: {quantizer.site.name} has {granularity.variant_name} ranges, and folding "
            "makes one range do; use per-tensor there, or skip it"
        )


def _check_free(model: QuantizedEncoder, done: Equalization, channels: Channels) -> None:
    """Refuse channels that another pass has changed, under the name of any of their sites."""
    for name in channels.sites:
        quantizer = model.quantizers[name]
        _check_granularity(done, quantizer)
        for entry in model.passes:
            if isinstance(entry, Equalization) and entry.applies(name, quantizer.site.role):
                raise SpecError(f"{done.variant_name}: two passes name {name}; let one of them skip it")


# -- by how much ---------------------------------------------------------------------------------------------


def _choose(
    model: QuantizedEncoder, done: Equalization, group: Group, seen: Mapping[str, Observed]
) -> Candidate:
    """Return the candidate that a pass names, or the best of those it searches."""
    if isinstance(done, Fold):
        return Candidate(way="power", amount=done.power)
    if isinstance(done, SmoothQuant):
        return Candidate(way="smooth", amount=done.alpha)
    if isinstance(done, MigrateGamma):
        return Candidate(way="gamma")
    if isinstance(done, ShiftAndScale):
        return _best(model, list(_shifted(done)), group, seen)
    assert isinstance(done, Equalize)
    nothing = Candidate()
    is_free = all(channels.is_free for channels in group)
    shifts = all(channels.shifts for channels in group) and not _reads_coarsely(model, group)
    candidates = [nothing, *_searched(done, shifts, ranges_of(model, group, seen))]
    return _best(model, candidates, group, seen, worth=1.0 if is_free else done.worth)


def _shifted(done: ShiftAndScale) -> Iterator[Candidate]:
    for step in range(done.thresholds):
        yield Candidate(way="threshold", amount=step / max(1, done.thresholds - 1), shift=done.shift)


def _reads_coarsely(model: QuantizedEncoder, group: Group) -> bool:
    """Whether weights that read the channels have so few bits that nothing should be shifted.

    The middle of a range lies between a few odd tokens and all others. Shifted by it, all of them are far
    from 0, and what a weight is rounded by counts everywhere.
    """
    readers = (reader for channels in group for reader in channels.readers)
    quantizers = (quantizer_of(model, reader.weight) for reader in readers)
    return any(quantizer is not None and quantizer.spec.bits < _FEWEST_BITS for quantizer in quantizers)


def _searched(done: Equalize, shifts: bool, ranges: Ranges) -> Iterator[Candidate]:
    """Yield what the search tries besides doing nothing."""
    for shift in (False, True) if shifts else (False,):
        if shift:
            yield Candidate(shift=True)
        for power in done.powers:
            yield Candidate(way="power", amount=power, shift=shift)
        for alpha in done.alphas:
            yield Candidate(way="smooth", amount=alpha, shift=shift)
        for step in range(1, done.thresholds + 1):
            yield Candidate(way="threshold", amount=step / done.thresholds, shift=shift)
    if ranges.gamma is not None:
        yield Candidate(way="gamma")


def _best(
    model: QuantizedEncoder,
    candidates: Sequence[Candidate],
    group: Group,
    seen: Mapping[str, Observed],
    worth: float = 1.0,
) -> Candidate:
    """Return the candidate with the least error; leave the first only if that falls below `worth` of its."""
    errors = [0.0] * len(candidates)
    for half in HALVES:
        costs = [Costs(model, channels, seen, half) for channels in group]
        ranges = ranges_of(model, group, seen, 1 - half)
        for index, candidate in enumerate(candidates):
            errors[index] += cost(costs, candidate.make(ranges))
    best = min(range(len(candidates)), key=errors.__getitem__)
    return candidates[best] if errors[best] < worth * errors[0] else candidates[0]
