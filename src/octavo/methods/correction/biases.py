"""Bias correction: what every linear layer's output is off by, on calibration data, goes into its bias.

A layer's output changes by W_hat x_hat - W x. As published, the mean of that over tokens is taken off. But
where a few special tokens carry outliers their errors are large and their own, and taking the mean off all
others does harm; the median of every output follows the many. Layers are corrected in the order of
computation, each with the layers before it corrected, in one run of both models.

What most tokens have in common is taken off all, which may still do harm: a guarded pass compares the error
of the model's outputs with and without, and leaves biases alone where that is better.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from octavo.errors import ModelError, OctavoWarning
from octavo.graph import Encoder, QuantizedEncoder
from octavo.graph.batches import of_equal_length
from octavo.graph.relay import Relay
from octavo.graph.rewrites.biases import add_biases, bias_path
from octavo.graph.sites.flow import LINEAR, operation
from octavo.methods.calibration.output_error import output_error
from octavo.methods.context import Batches, Context
from octavo.progress import Progress, silent
from octavo.spec import BiasCorrection

_TEXTS = 32
"""Calibration texts, spread over lengths, that tell whether corrections do any good."""
_MOST_ROWS = 2**13
"""At most so many rows, evenly spread, are kept for a median."""


@dataclass(frozen=True, eq=False)
class _Shared:
    """One bias, by all its paths, and the linear layers (names of nodes) that read it, in order."""

    paths: tuple[str, ...]
    nodes: tuple[str, ...]


def run(model: QuantizedEncoder, done: BiasCorrection, context: Context) -> QuantizedEncoder:
    """Correct the biases of a model whose ranges are fixed, in parameters of its own."""
    reference = model.float_model or model.without_quantizers()
    if not done.guarded:
        corrected = add_biases(model)
        correct_biases(corrected, reference, context.batches, done, context.progress)
        return corrected.rewritten(done)
    error = output_error(context, _TEXTS)
    before = error.of(model)
    corrected = add_biases(model)  # the same graph where no layer lacks a bias, so biases are kept aside
    old = {path: corrected.graph.get_parameter(path) for path in _paths(corrected)}
    correct_biases(corrected, reference, context.batches, done, context.progress)
    after = error.of(corrected)
    kept = after <= before
    context.findings["bias-correction"] = {"error": {"before": before, "after": after}, "kept": kept}
    if not kept:
        for path, parameter in old.items():
            _put(corrected.graph, path, parameter)
    return (corrected if kept else model).rewritten(done)


def replay(model: QuantizedEncoder, done: BiasCorrection, saved: Mapping[str, Tensor]) -> QuantizedEncoder:
    """Add the biases that the saved model has; their values are still to be loaded."""
    return add_biases(model, saved.keys()).rewritten(done)


def correct_biases(
    model: QuantizedEncoder,
    reference: Encoder,
    batches: Batches,
    settings: BiasCorrection,
    progress: Progress = silent,
) -> dict[str, Tensor]:
    """Subtract from every bias the error of the layers that read it, and return what was subtracted.

    Arguments:
        model: calibrated, every linear layer with a bias.
        reference: the float model, whose layers have the same names.
        batches: token ids; padding never counts.
    """
    shared = _biases(model.graph, reference.graph)
    rows = of_equal_length(batches)
    relays = Relay(model, rows), Relay(reference, rows)
    changes = {}
    for number, bias in enumerate(shared, start=1):
        error = _error(bias.nodes, *relays, settings.robust)
        put_bias(model.graph, bias.paths, error)
        changes[bias.paths[0]] = error
        progress(number, len(shared))
    return changes


def _error(nodes: Sequence[str], quantized: Relay, float_: Relay, robust: bool) -> Tensor:
    """Return the median or mean error of these layers' outputs over all their rows, (outputs,) in float64."""
    weights = [[relay.weight_of(node) for node in nodes] for relay in (quantized, float_)]
    kept: list[Tensor] = []
    total: Tensor | None = None
    rows, stride = 0, 1
    for pairs in zip(quantized.read_by(nodes), float_.read_by(nodes), strict=True):
        for x_hat, x, changed, weight in zip(*pairs, *weights, strict=True):
            x_hat, x = (each.detach().reshape(-1, each.shape[-1]) for each in (x_hat, x))
            errors = x_hat @ changed.T - x @ weight.T
            if robust:  # rows 0, stride, 2 stride, ... of all that pass
                kept.append(errors[-rows % stride :: stride])
                if sum(map(len, kept)) > _MOST_ROWS:
                    kept, stride = [torch.cat(kept)[::2]], 2 * stride
            else:
                total = errors.double().sum(0) if total is None else total + errors.double().sum(0)
            rows += len(errors)
    if total is not None:
        return total / rows
    return torch.cat(kept).float().quantile(0.5, dim=0).double()


def put_bias(graph: fx.GraphModule, paths: Sequence[str], error: Tensor) -> None:
    """Subtract an error from a bias in this graph alone."""
    old = graph.get_parameter(paths[0])
    value = (old.detach().double() - error.to(old.device)).to(old.dtype)
    parameter = nn.Parameter(value, requires_grad=old.requires_grad)
    for path in paths:
        _put(graph, path, parameter)


def _put(graph: fx.GraphModule, path: str, parameter: nn.Parameter) -> None:
    holder, _, leaf = path.rpartition(".")
    setattr(graph.get_submodule(holder), leaf, parameter)


def _paths(model: QuantizedEncoder) -> list[str]:
    """Return where the biases of linear layers are."""
    layers = (node for node in model.graph.graph.nodes if operation(node) == "linear")
    found = (bias_path(node) for node in layers)
    return [path for path in dict.fromkeys(found) if path is not None]


def _biases(graph: fx.GraphModule, reference: fx.GraphModule) -> list[_Shared]:
    """Return every bias of linear layers once, by its first reader; what cannot be corrected is told."""
    known = {node.name for node in reference.graph.nodes}
    found: dict[int, tuple[list[str], list[str]]] = {}
    left: list[str] = []
    for node in graph.graph.nodes:
        if operation(node) not in LINEAR:
            continue
        path = bias_path(node) if operation(node) == "linear" else None
        if path is None or not _is_weight(node.args[1]):
            left.append(node.name)
            continue
        if node.name not in known:
            raise ModelError(
                f"bias-correction: the float model has no layer {node.name}; let the pass come before those "
                "that rewrite the graph"
            )
        paths, nodes = found.setdefault(id(graph.get_parameter(path)), ([], []))
        nodes.append(node.name)
        if path not in paths:
            paths.append(path)
    if left:
        warnings.warn(
            f"bias-correction leaves {len(left)} layers as they are, whose weights or biases are computed or "
            f"which are convolutions (the first is {left[0]})",
            OctavoWarning,
            stacklevel=4,
        )
    return [_Shared(tuple(paths), tuple(nodes)) for paths, nodes in found.values()]


def _is_weight(node: object) -> bool:
    while isinstance(node, fx.Node) and node.op == "call_module":
        node = node.args[0]
    return isinstance(node, fx.Node) and node.op == "get_attr"
