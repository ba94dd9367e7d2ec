"""AdaRound: weights rounded up or down so that layers keep their outputs, in the order of computation.

Embedding tables come first (see `embedding_rounding`). Then each linear layer is rebuilt asymmetrically:
its input comes from the model quantized so far, its target from the float model. Activations stay in float
meanwhile and are calibrated afterwards.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from octavo.errors import CalibrationError, OctavoWarning, SpecError
from octavo.graph import Encoder, QuantizedEncoder, Site
from octavo.graph.quantizers.switch import switched_off
from octavo.graph.sites.flow import operation
from octavo.methods.rounding.moments import Moments, input_moments, of_equal_length
from octavo.methods.rounding.state import WorkFolder, digest
from octavo.methods.rounding.tables import find_lookups, round_table
from octavo.numerics import dequantize
from octavo.numerics.adaround import Rounded, Schedule, adaround
from octavo.spec import AdaRound, recipe_to_dict

Batches = Sequence[Mapping[str, Tensor]]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class _Layer:
    """Weights whose linear layers (names of nodes) read the same tensors, such as query, key and value."""

    nodes: tuple[str, ...]
    sites: list[Site]


def round_weights(
    model: QuantizedEncoder,
    encoder: Encoder,
    batches: Batches,
    settings: AdaRound,
    *,
    work: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, tuple[float, float]]:
    """Choose the integers of every quantized embedding and linear weight of `model`, in copies of its own.

    Arguments:
        model: `encoder` with a recipe attached and weights fixed.
        batches: token ids; padding never counts. They run once for each layer and nothing of that is kept.
        work: a folder in which finished weights are kept, so that the run can go on after an interruption.
        progress: called with (work done, work in all) in units that take about the same time.

    Returns the loss of the linear weights rounded now, by site: to nearest, and as chosen.
    """
    if not batches:
        raise CalibrationError(f"recipe {model.recipe.name!r} rounds weights with AdaRound; give it texts")
    if model.transforms:
        done = ", ".join(model.transforms)
        raise SpecError(f"recipe {model.recipe.name!r}: AdaRound cannot follow {done}; use rounding: nearest")
    pieces = of_equal_length(batches)
    tables, layers = find_lookups(model, encoder), _layers(model)
    folder = None if work is None else WorkFolder(work, _fingerprint(model, pieces, settings))
    rounded_sites = [site for layer in layers for site in layer.sites]
    meter = _Meter(rounded_sites, settings.iterations, model.device, progress)
    losses: dict[str, tuple[float, float]] = {}
    activations = [q for q in model.quantizers.values() if q.site.kind == "activation"]
    with switched_off(activations):
        for table in tables:
            if not _restore(model, table.site, folder):
                _keep(model, table.site, round_table(model, encoder, table, pieces), folder)
        for layer in layers:
            todo = [site for site in layer.sites if not _restore(model, site, folder)]
            moments = input_moments(model, encoder, layer.nodes, pieces) if todo else None
            for site in layer.sites:
                if moments is not None and site in todo:
                    rounded = _round(model, site, moments, settings, meter.within(site))
                    _keep(model, site, rounded.integers, folder)
                    losses[site.name] = rounded.nearest_loss, rounded.loss
                meter.finish(site)
    return losses


def put_integers(model: QuantizedEncoder, site: Site, integers: Tensor) -> None:
    """Give a weight site the values of `integers` on its grid."""
    quantizer, old = model.quantizers[site.name], model.parameter(site)
    scale, zero_point = quantizer.per_channel(old.dim())
    put_weight(model, site, dequantize(integers.to(old.device), scale, zero_point).to(old.dtype))
    quantizer.keep(model.parameter(site))


def put_weight(model: QuantizedEncoder, site: Site, value: Tensor) -> None:
    """Replace a weight in this model alone: its graph shares the float encoder's parameters until then."""
    parameter = nn.Parameter(value, requires_grad=model.parameter(site).requires_grad)
    for target in site.targets:
        path, _, leaf = target.rpartition(".")
        setattr(model.graph.get_submodule(path), leaf, parameter)


def _round(
    model: QuantizedEncoder, site: Site, moments: Moments, settings: AdaRound, progress: Callable[[int], None]
) -> Rounded:
    quantizer, weight = model.quantizers[site.name], model.parameter(site).detach()
    scale, zero_point = quantizer.per_channel(weight.dim())
    rounded = adaround(
        weight,
        scale,
        (quantizer.low - zero_point, quantizer.high - zero_point),
        moments.own.float(),
        (weight.double() @ moments.shift).float(),
        Schedule(
            iterations=settings.iterations,
            learning_rate=settings.step,
            weight=settings.weight,
            warmup=settings.warmup,
            beta=settings.beta,
        ),
        progress,
    )
    return replace(rounded, integers=rounded.integers + zero_point)


def _restore(model: QuantizedEncoder, site: Site, folder: WorkFolder | None) -> bool:
    """Take a weight that an earlier run finished; whether there was one."""
    integers = None if folder is None else folder.load(site)
    if integers is not None:
        put_integers(model, site, integers)
    return integers is not None


def _keep(model: QuantizedEncoder, site: Site, integers: Tensor, folder: WorkFolder | None) -> None:
    put_integers(model, site, integers)
    if folder is not None:
        folder.save(site, integers)


def _layers(model: QuantizedEncoder) -> list[_Layer]:
    """The quantized linear weights in the order of computation, grouped by what their layers read."""
    position = {node: place for place, node in enumerate(model.graph.graph.nodes)}
    found: dict[tuple[fx.Node, ...], _Layer] = {}
    left: list[str] = []
    for site in model.weight_sites:
        if site.name not in model.quantizers or site.role != "linear_weight":
            continue
        readers = sorted(_readers(model.graph, site), key=position.__getitem__)
        inputs = tuple(node.args[0] for node in readers if operation(node) == "linear")
        if len(inputs) < len(readers) or not inputs:
            left.append(site.name)
            continue
        key = tuple(node for node in inputs if isinstance(node, fx.Node))
        found.setdefault(key, _Layer(tuple(node.name for node in readers), [])).sites.append(site)
    if not found:
        raise SpecError(f"recipe {model.recipe.name!r} rounds with AdaRound but quantizes no linear layer")
    if left:
        message = f"AdaRound rounds {', '.join(left)} to nearest: something else than a linear layer reads it"
        warnings.warn(message, OctavoWarning, stacklevel=3)
    first = {node.name: place for node, place in position.items()}
    return sorted(found.values(), key=lambda layer: first[layer.nodes[0]])


def _readers(graph: fx.GraphModule, site: Site) -> list[fx.Node]:
    """The operations that read the quantized weight."""
    attributes = [node for node in graph.graph.nodes if node.op == "get_attr" and node.target in site.targets]
    return [reader for node in attributes for quantizer in node.users for reader in quantizer.users]


def _fingerprint(model: QuantizedEncoder, batches: Batches, settings: AdaRound) -> dict[str, Any]:
    recipe = recipe_to_dict(model.recipe)
    return {
        **asdict(settings),
        "recipe": {key: value for key, value in recipe.items() if key != "rounding"},
        "data": digest(batch[name] for batch in batches for name in sorted(batch)),
        "weights": digest(model.parameter(site) for site in model.weight_sites),
    }


class _Meter:
    """Counts work: iterations, weighted by their arithmetic where that, and not its start, takes the time."""

    def __init__(
        self, sites: Sequence[Site], iterations: int, device: torch.device, progress: Progress | None
    ) -> None:
        self._iterations, self._progress = iterations, progress
        self._cost = {site.name: 1 if device.type == "cuda" else _arithmetic(site) for site in sites}
        self._total = iterations * sum(self._cost.values())
        self._done = 0

    def within(self, site: Site) -> Callable[[int], None]:
        """A callback that takes the iterations done of one weight."""
        return lambda iterations: self._tell(self._done + iterations * self._cost[site.name])

    def finish(self, site: Site) -> None:
        """Count a whole weight as done."""
        self._done += self._iterations * self._cost[site.name]
        self._tell(self._done)

    def _tell(self, done: int) -> None:
        if self._progress is not None:
            self._progress(done, self._total)


def _arithmetic(site: Site) -> int:
    outputs, inputs = (int(size) for size in site.shape)
    # a product with (inputs, inputs), and elementwise work that costs about as much as 200 more inputs
    return outputs * inputs * (inputs + 200) // 10**6 + 1
