"""Folding: channel factors of an activation moved into the norm before it and the weights that read it.

    LayerNorm(r; g, b) ── x ── W      =      LayerNorm(r; g/s, b/s) ── x/s ── W diag(s)

Both compute the same; but x/s can have one range where x had outliers in few dimensions, so a per-tensor quantizer at
x/s acts as one with a scale per embedding dimension (section 4 of the paper). A residual sum that reads x as well goes on
reading it from the norm as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, fx, nn

from octavo.errors import SpecError
from octavo.graph.editing import Editor, label
from octavo.graph.flow import CARRIER, operation
from octavo.graph.quantized import QuantizedEncoder
from octavo.graph.quantizer import Quantizer
from octavo.spec import Folded

TRANSFORM = "fold"
_HOLDER = "folded"
_ATEN = torch.ops.aten


def folded_sites(model: QuantizedEncoder) -> dict[str, Quantizer]:
    """The quantizers whose channels are folded, by site."""
    return {name: q for name, q in model.quantizers.items() if isinstance(q.spec.granularity, Folded)}


def fold(model: QuantizedEncoder, factors: Mapping[str, Tensor] | None = None) -> QuantizedEncoder:
    """The same function with every folded site divided by its factors, (width,); ones where none are given.

    Without factors this is the rewrite alone, for a model whose parameters are still to be loaded.
    """
    editor = Editor(model.graph, model.quantizers)
    calls = {str(node.target): node for node in editor.graph.nodes if node.op == "call_module"}
    readers = weights_read(model)
    columns: dict[str, Tensor] = {}
    for name, quantizer in folded_sites(model).items():
        width = quantizer.site.width
        assert width is not None
        factor = torch.ones(width) if factors is None else factors[name]
        _divide(editor, calls[f"quantizers.{label(name)}"], name, factor)
        columns |= dict.fromkeys(readers[name], factor)
    for path, factor in columns.items():
        _scale_columns(editor.module, path, factor)
    parts: dict[str, Any] = {field.name: getattr(model, field.name) for field in fields(model)}
    changed = {"graph": editor.finish(), "quantizers": editor.quantizers}
    return QuantizedEncoder(**parts | changed | {"transforms": (*model.transforms, TRANSFORM)})


def weights_read(model: QuantizedEncoder) -> dict[str, list[str]]:
    """The parameters of the linear layers that read each folded site; any other reader is an error."""
    found = {}
    for name in folded_sites(model):
        readers = list(_readers(_call_of(model, name)))
        odd = next((reader for reader in readers if operation(reader) != "linear"), None)
        if odd is not None or not readers:
            what = operation(odd) if odd is not None else "nothing"
            raise SpecError(
                f"folded: {name} is read by {what}, only linear layers can take factors; "
                "use placement linear-inputs, or per-tensor there"
            )
        found[name] = [str(_parameter(reader.args[1], name).target) for reader in readers]
    return found


def _call_of(model: QuantizedEncoder, site: str) -> fx.Node:
    wanted = f"quantizers.{label(site)}"
    return next(node for node in model.graph.graph.nodes if node.target == wanted)


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    for user in node.users:
        if operation(user) in CARRIER:
            yield from _readers(user)
        else:
            yield user


def _parameter(weight: object, site: str) -> fx.Node:
    node = weight
    while isinstance(node, fx.Node) and node.op == "call_module":
        node = node.args[0]
    if not isinstance(node, fx.Node) or node.op != "get_attr":
        raise SpecError(f"folded: {site} is read by a layer whose weight is computed; use per-tensor there")
    return node


def _divide(editor: Editor, call: fx.Node, site: str, factor: Tensor) -> None:
    """Let a quantizer read x/s: from a second norm where a norm makes x, else by a multiplication."""
    source = call.args[0]
    assert isinstance(source, fx.Node)
    norm = source
    while operation(norm) == "dropout":
        norm = norm.all_input_nodes[0]
    path = f"{_HOLDER}.{label(site)}"
    with editor.graph.inserting_before(call):
        if operation(norm) == "layer_norm" and _is_plain(norm):
            x, shape, weight, bias, *rest = norm.args
            scaled = [_scaled(editor, path, part, node, factor, norm) for part, node in (("weight", weight), ("bias", bias))]
            made = editor.call(_ATEN.layer_norm.default, x, shape, *scaled, *rest)
        else:
            inverse = editor.tensor(f"{path}.inverse", nn.Parameter(1 / factor, requires_grad=False), source)
            made = editor.call(_ATEN.mul.Tensor, source, inverse)
    call.replace_input_with(source, made)


def _is_plain(norm: fx.Node) -> bool:
    parameters = norm.args[2:4]
    return len(parameters) == 2 and all(isinstance(n, fx.Node) and n.op == "get_attr" for n in parameters)


def _scaled(editor: Editor, path: str, part: str, node: object, factor: Tensor, like: fx.Node) -> fx.Node:
    assert isinstance(node, fx.Node)
    value = editor.module.get_parameter(str(node.target)).detach()
    return editor.tensor(f"{path}.{part}", nn.Parameter(value / factor.to(value)), like)


def _scale_columns(module: fx.GraphModule, path: str, factor: Tensor) -> None:
    """Put W diag(s) in the place of W; the float model keeps its own."""
    *parents, leaf = path.split(".")
    holder: nn.Module = module.get_submodule(".".join(parents))
    value = holder.get_parameter(leaf).detach()
    setattr(holder, leaf, nn.Parameter(value * factor.to(value)))
