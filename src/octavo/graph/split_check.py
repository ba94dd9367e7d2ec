"""What can be split into per-tensor pieces, said before anything is changed."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import fx

from octavo.errors import CalibrationError, SpecError
from octavo.graph.quantized import QuantizedEncoder
from octavo.graph.quantizer import Quantizer, State
from octavo.graph.sites import Site
from octavo.spec import PerGroup, PerTensor


def grouped(model: QuantizedEncoder) -> dict[str, Quantizer]:
    """The activation quantizers with groups, in the order of computation."""
    return {
        site.name: model.quantizers[site.name]
        for site in model.activation_sites
        if site.name in model.quantizers
        and isinstance(model.quantizers[site.name].spec.granularity, PerGroup)
    }


def check_split(model: QuantizedEncoder) -> None:
    """Refuse what cannot be split, naming the site and the remedy."""
    found = grouped(model)
    if "split" in model.transforms:
        raise SpecError(f"{model.name} is split already")
    if not found:
        raise SpecError(
            f"recipe {model.recipe.name!r} has no per-group activations, so there is nothing to split; "
            "use one that has, such as w8a8-peg6"
        )
    for name, quantizer in model.quantizers.items():
        _check_state(name, quantizer)
        _check_granularity(name, quantizer)
    layers: dict[str, dict[str, Quantizer]] = {}
    for name, quantizer in found.items():
        layers.setdefault(name.rpartition(".")[0], {})[name] = quantizer
        if quantizer.axis not in (-1, len(quantizer.site.shape) - 1):
            raise SpecError(
                f"{name} has its channels on axis {quantizer.axis}, as convolutions do, and only the last "
                "axis can be split; use per-tensor ranges there"
            )
    for prefix, quantizers in layers.items():
        _check_shared(quantizers)
        _check_post_norm(model, prefix, quantizers)


def _check_state(name: str, quantizer: Quantizer) -> None:
    if quantizer.state in (State.OBSERVE, State.LEARN):
        raise CalibrationError(
            f"{name} is still in state {quantizer.state.value}; calibrate and fix the model, then split it"
        )


def _check_granularity(name: str, quantizer: Quantizer) -> None:
    granularity = quantizer.spec.granularity
    if quantizer.site.kind == "activation" and not isinstance(granularity, PerTensor | PerGroup):
        raise SpecError(
            f"{name} is {type(granularity).__name__}, which has no per-tensor form; "
            "use PerGroup or PerTensor there"
        )


def _check_shared(quantizers: dict[str, Quantizer]) -> None:
    """The permuted sites of a layer must have one permutation, or each would need gathers of its own."""
    permuted = {name: q for name, q in quantizers.items() if _permutes(q)}
    for (first, one), (second, other) in pairwise(permuted.items()):
        if one.site.width == other.site.width and not torch.equal(one.index, other.index):
            raise SpecError(
                f"{first} and {second} have different permutations or groups, and a split needs one for "
                "the layer; use the same number of groups with shared: true"
            )


def _permutes(quantizer: Quantizer) -> bool:
    granularity = quantizer.spec.granularity
    return isinstance(granularity, PerGroup) and granularity.permute


def _check_post_norm(model: QuantizedEncoder, prefix: str, quantizers: dict[str, Quantizer]) -> None:
    """The FFN must add back its own input, as post-norm layers do, so that the sum has the input's pieces."""
    sites = {site.name: site for site in model.activation_sites}
    inputs, residual = sites.get(f"{prefix}.ffn_input"), sites.get(f"{prefix}.ffn_residual")
    if inputs is None or residual is None or not {inputs.name, residual.name} & quantizers.keys():
        return
    if not _adds_back(model.graph, residual, inputs):
        raise SpecError(
            f"{residual.name} does not add {inputs.name} back: this is a pre-norm layer, and only post-norm "
            f"layers can be split; use per-tensor ranges at {prefix}.ffn_*, in 16 bits where 8 are too few "
            "(w8a8-mp)"
        )


def _adds_back(graph: fx.GraphModule, residual: Site, inputs: Site) -> bool:
    nodes = {node.name: node for node in graph.graph.nodes}
    return any(_origin(node).name == inputs.targets[0] for node in nodes[residual.targets[0]].all_input_nodes)


def _origin(node: fx.Node) -> fx.Node:
    """The operation behind quantizers and dropout."""
    while node.op == "call_module" and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node
