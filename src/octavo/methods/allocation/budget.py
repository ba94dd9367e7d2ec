"""Bits for every layer under a size budget, from Hessian eigenvalues (Q-BERT)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from octavo.errors import SpecError
from octavo.graph import Encoder, Quantizer, Site
from octavo.methods.allocation.hessian import Sensitivity, layer_sensitivities
from octavo.methods.context import Calibration, Context, batches_of
from octavo.progress import Progress, silent
from octavo.spec import AllocateBits, Budget, MinMax, Mse, Override, Recipe, TensorSpec
from octavo.spec.presets import recipe as preset

CHOICES = (2, 3, 4, 8)
_FLOAT_BITS = 32


def plan(recipe: Recipe, asked: AllocateBits, context: Context) -> Recipe:
    """Return the recipe with the overrides that the pass finds in its place."""
    assert context.calibration is not None
    base = replace(recipe, passes=tuple(entry for entry in recipe.passes if entry != asked))
    allocated = allocate_bits(
        context.encoder,
        context.calibration,
        asked.budget,
        choices=asked.choices,
        base=base,
        parts=asked.parts,
        seed=context.seed,
        progress=context.progress,
    )
    return replace(allocated, name=recipe.name)


def allocate_bits(
    encoder: Encoder,
    calibration: Calibration,
    budget: Budget,
    *,
    choices: Sequence[int] = CHOICES,
    base: Recipe | None = None,
    parts: int = 8,
    seed: int = 0,
    progress: Progress = silent,
) -> Recipe:
    """Return a recipe that gives sensitive layers more bits, within a budget.

    Quantizing layer i to b bits moves its weights by d(i, b), and the loss by at most half of
    eigenvalue(i) * |d(i, b)|^2. The sum of these bounds is made small: from the fewest bits on, the layer
    that gains most per added bit gets more.

    Arguments:
        calibration: texts, or batches of token ids (with `labels` the task's loss counts, see
            `octavo.methods.allocation.hessian`).
        choices: bit-widths to choose from.
        base: everything else; `qbert-w8a8` if left out.
        parts: into how many batches texts are cut; each gives an eigenvalue, and their spread counts as well.
        progress: called with (batches done, batches in all).
    """
    base = preset("qbert-w8a8") if base is None else base
    layers = _layers(encoder, base)
    counts = {name: sum(_count(site) for site in sites) for name, sites in layers.items()}
    allowed = _allowed(encoder, base, layers, counts, budget, choices)
    parameters = {
        name: [encoder.graph.get_parameter(s.targets[0]) for s in sites] for name, sites in layers.items()
    }
    batches = batches_of(encoder, calibration, _rows(calibration, parts), seed, None)
    sensitivities = layer_sensitivities(encoder, parameters, batches, seed, progress)
    costs = {
        name: _costs(encoder, base, sites, sensitivities[name], choices) for name, sites in layers.items()
    }
    return _recipe(base, layers, assign(costs, counts, allowed))


def assign(
    costs: Mapping[str, Mapping[int, float]], counts: Mapping[str, int], allowed: float
) -> dict[str, int]:
    """Bits for every layer, of `costs[layer][bits]` a small sum, with sum(counts * bits) <= `allowed`."""
    chosen = {name: min(options) for name, options in costs.items()}
    left = allowed - sum(counts[name] * bits for name, bits in chosen.items())
    while True:
        steps = [
            ((costs[name][now] - costs[name][bits]) / (counts[name] * (bits - now)), name, bits)
            for name, now in chosen.items()
            for bits in costs[name]
            if bits > now and counts[name] * (bits - now) <= left
        ]
        gain, name, bits = max(steps, default=(0.0, "", 0))
        if gain <= 0:
            return chosen
        left -= counts[name] * (bits - chosen[name])
        chosen[name] = bits


def _layers(encoder: Encoder, base: Recipe) -> dict[str, list[Site]]:
    """The matrices that the base recipe quantizes, by layer."""
    found: dict[str, list[Site]] = {}
    for site in encoder.weight_sites:
        if site.layer is None or site.role != "linear_weight":
            continue
        if base.spec(site.name, "weight", site.role) is not None:
            found.setdefault(f"layers.{site.layer}", []).append(site)
    if not found:
        raise SpecError(
            f"recipe {base.name!r} quantizes no matrix in the layers of {encoder.name}; "
            "use a base that does, such as qbert-w8a8"
        )
    return found


def _allowed(
    encoder: Encoder,
    base: Recipe,
    layers: Mapping[str, Sequence[Site]],
    counts: Mapping[str, int],
    budget: Budget,
    choices: Sequence[int],
) -> float:
    if not isinstance(budget, Budget):
        raise SpecError(f"budget must be AverageBits or Megabytes, got {budget!r}")
    inside = {site.name for sites in layers.values() for site in sites}
    outside = [site for site in encoder.weight_sites if site.name not in inside]
    fixed = sum(_count(site) * _bits(base.spec(site.name, "weight", site.role)) for site in outside)
    allowed = budget.of(counts, fixed)
    least = min(choices) * sum(counts.values())
    if allowed < least:
        raise SpecError(
            f"{budget!r} leaves {allowed / 8e6:.2f} MB for the layers of {encoder.name}, which take "
            f"{least / 8e6:.2f} MB at {min(choices)} bits ({(least + fixed) / 8e6:.2f} MB in all); "
            "give a larger budget"
        )
    return allowed


def _bits(spec: TensorSpec | None) -> int:
    return _FLOAT_BITS if spec is None else spec.bits


def _count(site: Site) -> int:
    total = 1
    for size in site.shape:
        total *= int(size)
    return total


def _costs(
    encoder: Encoder, base: Recipe, sites: Sequence[Site], sensitivity: Sensitivity, choices: Sequence[int]
) -> dict[int, float]:
    """The bound on the growth of the loss at each number of bits."""
    costs = {}
    for bits in choices:
        error = sum(
            _error(encoder.graph.get_parameter(site.targets[0]), site, _spec(base, site, bits))
            for site in sites
        )
        costs[bits] = sensitivity.value * error / 2
    return costs


def _spec(base: Recipe, site: Site, bits: int) -> TensorSpec:
    spec = base.spec(site.name, "weight", site.role)
    assert spec is not None
    return replace(spec, bits=bits, estimator=_estimator(bits))


def _estimator(bits: int) -> MinMax | Mse:
    return MinMax() if bits >= 8 else Mse()


def _error(weight: Tensor, site: Site, spec: TensorSpec) -> float:
    quantizer = Quantizer(site, spec).to(weight.device)
    quantizer.observe(weight.detach())
    quantizer.fix()
    return float((quantizer(weight.detach()) - weight.detach()).square().sum())


def _rows(calibration: Calibration, parts: int) -> int:
    return max(1, -(-len(calibration) // parts)) if isinstance(calibration, Sequence) else 1


def _recipe(base: Recipe, layers: Mapping[str, Sequence[Site]], bits: Mapping[str, int]) -> Recipe:
    """The base with an override for every bit-width, naming its matrices one by one."""
    overrides = []
    for width in sorted(set(bits.values())):
        names = tuple(site.name for layer, sites in layers.items() if bits[layer] == width for site in sites)
        overrides.append(Override(sites=names, bits=width, estimator=_estimator(width)))
    chosen = " ".join(str(bits[layer]) for layer in layers)
    return replace(
        base,
        name=f"{base.name}-mixed",
        description=f"{base.name} with bits per layer from Hessian eigenvalues: {chosen}",
        overrides=(*base.overrides, *overrides),
    )
