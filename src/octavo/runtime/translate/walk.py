"""The walk over a captured graph, node by node, that writes it as ONNX."""

from __future__ import annotations

from functools import partial

from torch import fx, nn

from octavo.errors import ModelError
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.sites.flow import operation
from octavo.runtime.translate.context import Translation, Value
from octavo.runtime.translate.folding import foldable_factors
from octavo.runtime.translate.grids import quantize_activation
from octavo.runtime.translate.masks import light_masks
from octavo.runtime.translate.onnx_graph import OnnxGraph
from octavo.runtime.translate.operations import TABLE
from octavo.runtime.translate.options import Options
from octavo.runtime.translate.weights import dequantized_weight


def write_nodes(module: fx.GraphModule, graph: OnnxGraph, options: Options) -> list[str]:
    """Write every node of a captured graph and return the names of its results, in order."""
    factors, replaced = foldable_factors(module)
    t = Translation(module, graph, options, factors=factors, replaced=replaced)
    t.values |= light_masks(t)
    for node in module.graph.nodes:
        if node not in t.values:
            _write_node(t, node)
    output = next(node for node in reversed(module.graph.nodes) if node.op == "output")
    return [t.full(result) for result in output.args[0]]


def _write_node(t: Translation, node: fx.Node) -> None:
    if node.op in ("get_attr", "output"):
        return
    if node.op == "placeholder":
        t.values[node] = Value(name=str(node.target))
    elif node.op == "call_module":
        _write_module(t, node)
    elif node in t.replaced:
        t.values[node] = t.values[t.replaced[node]]
    elif operation(node) not in TABLE:
        raise ModelError(
            f"the operation {node.target}{_where(node)} has no ONNX translation here; export is not possible"
        )
    else:
        try:
            t.values[node] = TABLE[operation(node)](t, node)
        except ModelError as error:
            raise ModelError(f"{error}{_where(node)}") from error


def _where(node: fx.Node) -> str:
    """Return the module that a node was captured in: " (in encoder.layer.1.fourier, an FNetTransform)"."""
    stack = [entry for entry in (node.meta.get("nn_module_stack") or {}).values() if entry[0]]
    if not stack:
        return ""
    path, kind = stack[-1]
    return f" (in {path.removeprefix('model.')}, {str(getattr(kind, '__name__', kind)).rpartition('.')[2]})"


def _write_module(t: Translation, node: fx.Node) -> None:
    module = t.module.get_submodule(str(node.target))
    source = node.all_input_nodes[0]
    if isinstance(module, nn.Dropout) or (
        isinstance(module, Quantizer) and module.site.role in t.options.left_out
    ):
        t.values[node] = t.value(source)
    elif not isinstance(module, Quantizer):
        raise ModelError(
            f"{node.name} is an {type(module).__name__}, which has no ONNX translation; "
            "export a model of a recipe without integer functions"
        )
    elif module.site.kind == "weight":
        t.weights[node] = module
        t.defer(node, partial(dequantized_weight, t, node))
    else:
        t.values[node] = quantize_activation(t, source, module, t.factors.get(node, 1.0))
