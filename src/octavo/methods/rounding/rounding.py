"""What AdaRound and GPTQ share: the weights of a model, rounded one layer after another.

Embedding tables come first (see `tables`). Then each linear layer is rebuilt: its input comes from the model
quantized so far, its target from the float model. Activations stay in float meanwhile and are calibrated
afterwards. Both models run once, layer by layer (`octavo.graph.relay`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from octavo.errors import CalibrationError
from octavo.graph import Encoder, QuantizedEncoder, Site
from octavo.graph.batches import of_equal_length
from octavo.graph.quantizers.quantizer import require_integers
from octavo.graph.quantizers.switch import switched_off
from octavo.graph.relay import Relay
from octavo.ledger import Ledger, fingerprint
from octavo.methods.context import Batches
from octavo.methods.rounding.layers import Layer, find_layers, find_shared_layers
from octavo.methods.rounding.moments import Moments, input_moments
from octavo.methods.rounding.tables import Lookup, find_lookups, round_table
from octavo.numerics import dequantize
from octavo.numerics.adaround import Rounded
from octavo.numerics.weighted_mse import weighted_mse_grid
from octavo.progress import Progress
from octavo.spec import Mse, Stage, recipe_to_dict


@dataclass(frozen=True, eq=False)
class Problem:
    """One weight (outputs, inputs) to round, its grid, and the moments of what its layers read.

    scale: broadcasts against the weight; bounds: the ends of the grid, counted from its zero-point.
    """

    site: Site
    weight: Tensor
    scale: Tensor
    bounds: tuple[Tensor, Tensor]
    moments: Moments


Solve = Callable[[Problem, Callable[[int], None]], Rounded]
"""Rounds one weight; integers count from the zero-point. The function it is given takes the steps done."""


@dataclass(frozen=True, kw_only=True)
class Rounding:
    """How a method rounds a weight.

    Arguments:
        method: its name for messages.
        solve: rounds one weight.
        options: what the result depends on besides model and data, for the work folder.
        shrinkage: share of the moments off their diagonals that is taken back.
        weighted: find ranges of least squared error again, weighted by the mean square of the inputs.
        relative: every row of an input counts alike.
        only_shared: leave tables, and weights that one layer reads, at nearest.
        steps: how many steps of about equal work one weight takes.
    """

    method: str
    solve: Solve
    options: Mapping[str, Any]
    shrinkage: float = 0.0
    weighted: bool = False
    relative: bool = False
    only_shared: bool = False
    steps: int = 1


def round_model(
    model: QuantizedEncoder, batches: Batches, rounding: Rounding, work: Path | None, progress: Progress
) -> dict[str, tuple[float, float]]:
    """Choose the integers of every quantized embedding and linear weight of `model`, in copies of its own.

    Arguments:
        model: a recipe attached and weights fixed; passes such as folding may have gone before.
        batches: token ids; padding never counts.
        work: a folder in which finished weights are kept, so that the run can go on after an interruption.
        progress: called with (work done, work in all) in units that take about the same time.

    Returns the loss of the linear weights rounded now, by site: to nearest, and as chosen.
    """
    name = rounding.method
    require_integers((q for q in model.quantizers.values() if q.site.kind == "weight"), name)
    if not batches:
        raise CalibrationError(f"recipe {model.recipe.name!r} rounds weights with {name}; give it texts")
    reference = model.without_quantizers()
    rows = of_equal_length(batches)
    tables, layers = _what(model, reference, rounding)
    ledger = Ledger(work, _about(model, rows, rounding.options), noun=f"an interrupted run of {name}")
    meter = _Meter([s for layer in layers for s in layer.sites], rounding.steps, model.device, progress)
    relays = Relay(model, rows), Relay(reference, rows)
    losses: dict[str, tuple[float, float]] = {}
    with switched_off(q for q in model.quantizers.values() if q.site.kind == "activation"):
        for table in tables:
            if not _restore(model, table.site, ledger):
                _keep(model, table.site, round_table(model, reference, table, rows), ledger)
        for layer in layers:
            losses |= _round_layer(model, layer, rounding, relays, ledger, meter)
    return losses


def _what(
    model: QuantizedEncoder, reference: Encoder, rounding: Rounding
) -> tuple[list[Lookup], list[Layer]]:
    """Return the tables and the layers whose weights are rounded."""
    if rounding.only_shared:
        return [], find_shared_layers(model)
    return find_lookups(model, reference), find_layers(model, rounding.method)


def put_integers(model: QuantizedEncoder, site: Site, integers: Tensor) -> None:
    """Give a weight site the values of `integers` on its grid."""
    quantizer, old = model.quantizers[site.name], model.parameter(site)
    scale, zero_point = quantizer.per_channel(old.dim())
    model.put_weight(site, dequantize(integers.to(old.device), scale, zero_point).to(old.dtype))
    quantizer.keep(model.parameter(site))


def _round_layer(
    model: QuantizedEncoder,
    layer: Layer,
    rounding: Rounding,
    relays: tuple[Relay, Relay],
    ledger: Ledger,
    meter: _Meter,
) -> dict[str, tuple[float, float]]:
    """Round the weights of one layer that an earlier run did not finish, and return their losses."""
    losses = {}
    todo = [site for site in layer.sites if not _restore(model, site, ledger)]
    moments = None
    if todo:
        moments = input_moments(*relays, layer.nodes, rounding.relative).shrunk(rounding.shrinkage)
    for site in layer.sites:
        if moments is not None and site in todo:
            if rounding.weighted:
                _find_range_again(model, site, moments)
            rounded = _solve(model, site, moments, rounding.solve, meter.within(site))
            _keep(model, site, rounded.integers, ledger)
            losses[site.name] = rounded.nearest_loss, rounded.loss
        meter.finish(site)
    return losses


def _find_range_again(model: QuantizedEncoder, site: Site, moments: Moments) -> None:
    """Give the rows of a weight the ranges of least error of the layer's output, inputs uncorrelated."""
    quantizer, weight = model.quantizers[site.name], model.parameter(site).detach()
    if isinstance(quantizer.spec.estimator, Mse) and quantizer.axis in (None, 0):
        index = quantizer.index.new_zeros(len(weight)) if quantizer.axis is None else quantizer.index
        spec, importance = quantizer.spec, moments.own.diagonal()
        quantizer.set_affine(
            weighted_mse_grid(weight, importance, index, spec.bits, spec.symmetric, quantizer.affine())
        )


def _solve(
    model: QuantizedEncoder, site: Site, moments: Moments, solve: Solve, progress: Callable[[int], None]
) -> Rounded:
    quantizer, weight = model.quantizers[site.name], model.parameter(site).detach()
    scale, zero_point = quantizer.per_channel(weight.dim())
    bounds = quantizer.low - zero_point, quantizer.high - zero_point
    problem = Problem(site=site, weight=weight, scale=scale, bounds=bounds, moments=moments)
    rounded = solve(problem, progress)
    return replace(rounded, integers=rounded.integers + zero_point)


def _restore(model: QuantizedEncoder, site: Site, ledger: Ledger) -> bool:
    """Take a weight that an earlier run finished, and say whether there was one that fits."""
    kept = ledger.get_tensors(site.name)
    tensors = {} if kept is None else kept[1]
    integers = tensors.get("integers")
    if integers is None or tuple(integers.shape) != site.shape:
        return False
    if "scale" in tensors:
        quantizer = model.quantizers[site.name]
        scale, zero_point = (tensors[name].to(quantizer.scale.device) for name in ("scale", "zero_point"))
        quantizer.set_affine(replace(quantizer.affine(), scale=scale, zero_point=zero_point))
    put_integers(model, site, integers.to(torch.int32))
    return True


def _keep(model: QuantizedEncoder, site: Site, integers: Tensor, ledger: Ledger) -> None:
    put_integers(model, site, integers)
    if ledger.folder is not None:
        affine = model.quantizers[site.name].affine()
        grid = {"scale": affine.scale, "zero_point": affine.zero_point}
        ledger.put(site.name, {}, {"integers": integers.to(torch.int16), **grid})


def _about(model: QuantizedEncoder, batches: Batches, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the rounded weights depend on."""
    recipe = replace(model.recipe, passes=tuple(p for p in model.recipe.passes if p.stage < Stage.WEIGHTS))
    return {
        **options,
        "recipe": recipe_to_dict(recipe),
        "data": fingerprint(*batches),
        "weights": fingerprint(
            *(model.parameter(s) for s in model.weight_sites if s.name in model.quantizers)
        ),
    }


class _Meter:
    """Counts work: steps, weighted by their arithmetic where that, and not its start, takes the time."""

    def __init__(self, sites: Sequence[Site], steps: int, device: torch.device, progress: Progress) -> None:
        self._steps, self._progress = steps, progress
        self._cost = {site.name: 1 if device.type == "cuda" else _arithmetic(site) for site in sites}
        self._total = steps * sum(self._cost.values())
        self._done = 0

    def within(self, site: Site) -> Callable[[int], None]:
        """A callback that takes the steps done of one weight."""
        return lambda steps: self._tell(self._done + steps * self._cost[site.name])

    def finish(self, site: Site) -> None:
        """Count a whole weight as done."""
        self._done += self._steps * self._cost[site.name]
        self._tell(self._done)

    def _tell(self, done: int) -> None:
        self._progress(done, self._total)


def _arithmetic(site: Site) -> int:
    outputs, inputs = (int(size) for size in site.shape)
    # a product with (inputs, inputs), and elementwise work that costs about as much as 200 more inputs
    return outputs * inputs * (inputs + 200) // 10**6 + 1
