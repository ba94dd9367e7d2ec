"""AdaRound: weights rounded up or down so that layers keep their outputs, in the order of computation.

Embedding tables come first (see `embedding_rounding`). Then each linear layer is rebuilt asymmetrically:
its input comes from the model quantized so far, its target from the float model. Activations stay in float
meanwhile and are calibrated afterwards.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from octavo.errors import CalibrationError, OctavoWarning, SpecError
from octavo.graph import QuantizedEncoder, Site
from octavo.graph.batches import of_equal_length
from octavo.graph.quantizers.switch import switched_off
from octavo.graph.sites.flow import operation
from octavo.ledger import Ledger, fingerprint
from octavo.methods.context import Batches, Context
from octavo.methods.rounding.moments import Moments, input_moments
from octavo.methods.rounding.tables import find_lookups, round_table
from octavo.numerics import dequantize
from octavo.numerics.adaround import Rounded, Schedule, adaround
from octavo.progress import Progress, silent
from octavo.spec import AdaRound, Stage, recipe_to_dict


@dataclass(frozen=True, eq=False)
class _Layer:
    """Weights whose linear layers (names of nodes) read the same tensors, such as query, key and value."""

    nodes: tuple[str, ...]
    sites: list[Site]


def run(model: QuantizedEncoder, done: AdaRound, context: Context) -> QuantizedEncoder:
    """Round the weights of a model whose weights are on their grids, as the pass says."""
    round_weights(model, context.batches, done, work=context.work, progress=context.progress)
    return model.rewritten(done)


def round_weights(
    model: QuantizedEncoder,
    batches: Batches,
    settings: AdaRound,
    *,
    work: Path | None = None,
    progress: Progress = silent,
) -> dict[str, tuple[float, float]]:
    """Choose the integers of every quantized embedding and linear weight of `model`, in copies of its own.

    Arguments:
        model: a recipe attached and weights fixed; passes such as folding may have gone before.
        batches: token ids; padding never counts. They run once for each layer and nothing of that is kept.
        work: a folder in which finished weights are kept, so that the run can go on after an interruption.
        progress: called with (work done, work in all) in units that take about the same time.

    Returns the loss of the linear weights rounded now, by site: to nearest, and as chosen.
    """
    if not batches:
        raise CalibrationError(f"recipe {model.recipe.name!r} rounds weights with AdaRound; give it texts")
    reference = model.without_quantizers()
    rows = of_equal_length(batches)
    tables, layers = find_lookups(model, reference), _layers(model)
    ledger = Ledger(work, _about(model, rows, settings), noun="an interrupted run of AdaRound")
    meter = _Meter([s for layer in layers for s in layer.sites], settings.iterations, model.device, progress)
    losses: dict[str, tuple[float, float]] = {}
    with switched_off(q for q in model.quantizers.values() if q.site.kind == "activation"):
        for table in tables:
            if not _restore(model, table.site, ledger):
                _keep(model, table.site, round_table(model, reference, table, rows), ledger)
        for layer in layers:
            todo = [site for site in layer.sites if not _restore(model, site, ledger)]
            moments = input_moments(model, reference, layer.nodes, rows) if todo else None
            for site in layer.sites:
                if moments is not None and site in todo:
                    rounded = _round(model, site, moments, settings, meter.within(site))
                    _keep(model, site, rounded.integers, ledger)
                    losses[site.name] = rounded.nearest_loss, rounded.loss
                meter.finish(site)
    return losses


def put_integers(model: QuantizedEncoder, site: Site, integers: Tensor) -> None:
    """Give a weight site the values of `integers` on its grid."""
    quantizer, old = model.quantizers[site.name], model.parameter(site)
    scale, zero_point = quantizer.per_channel(old.dim())
    model.put_weight(site, dequantize(integers.to(old.device), scale, zero_point).to(old.dtype))
    quantizer.keep(model.parameter(site))


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
        flips=settings.flips,
    )
    return replace(rounded, integers=rounded.integers + zero_point)


def _restore(model: QuantizedEncoder, site: Site, ledger: Ledger) -> bool:
    """Take a weight that an earlier run finished, and say whether there was one that fits."""
    kept = ledger.get_tensors(site.name)
    integers = None if kept is None else kept[1].get("integers")
    if integers is None or tuple(integers.shape) != site.shape:
        return False
    put_integers(model, site, integers.to(torch.int32))
    return True


def _keep(model: QuantizedEncoder, site: Site, integers: Tensor, ledger: Ledger) -> None:
    put_integers(model, site, integers)
    if ledger.folder is not None:
        ledger.put(site.name, {}, {"integers": integers.to(torch.int16)})


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


def _about(model: QuantizedEncoder, batches: Batches, settings: AdaRound) -> dict[str, Any]:
    """Return what the rounded weights depend on."""
    recipe = replace(model.recipe, passes=tuple(p for p in model.recipe.passes if p.stage < Stage.WEIGHTS))
    options = asdict(settings)
    if settings.flips:  # said only where it is not so: folders from before it was an option go on
        del options["flips"]
    return {
        **options,
        "recipe": recipe_to_dict(recipe),
        "data": fingerprint(*batches),
        "weights": fingerprint(*(model.parameter(site) for site in model.weight_sites)),
    }


class _Meter:
    """Counts work: iterations, weighted by their arithmetic where that, and not its start, takes the time."""

    def __init__(
        self, sites: Sequence[Site], iterations: int, device: torch.device, progress: Progress
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
        self._progress(done, self._total)


def _arithmetic(site: Site) -> int:
    outputs, inputs = (int(size) for size in site.shape)
    # a product with (inputs, inputs), and elementwise work that costs about as much as 200 more inputs
    return outputs * inputs * (inputs + 200) // 10**6 + 1
