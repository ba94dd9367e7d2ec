"""Folding: channel factors of an activation moved into the norm before it and the weights that read it.

    LayerNorm(r; g, b) ── x ── W      =      LayerNorm(r; g/s, b/s) ── x/s ── W diag(s)

Both compute the same; but x/s can have one range where x had outliers in few dimensions, so a per-tensor
quantizer at x/s acts as one with a scale per embedding dimension (section 4 of the paper). A residual sum
that reads x as well goes on reading it from the norm as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor, fx, nn

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.rewrites.editing import Editor, label
from octavo.graph.sites.flow import CARRIER, operation
from octavo.spec import Fold

_HOLDER = "folded"
_INVERSE = "tied_inverse"
_ATEN = torch.ops.aten


def fold(model: QuantizedEncoder, done: Fold, factors: Mapping[str, Tensor]) -> QuantizedEncoder:
    """Return the same function with every site of `factors` divided by its factors, (width,).

    With factors of one this is the rewrite alone, for a model whose parameters are still to be loaded.
    """
    editor = Editor(model.graph, model.quantizers)
    calls = {str(node.target): node for node in editor.graph.nodes if node.op == "call_module"}
    columns: dict[str, Tensor] = {}
    for name, factor in factors.items():
        _divide(editor, calls[f"quantizers.{label(name)}"], name, factor)
        columns |= dict.fromkeys(weights_read(model, name), factor)
    for path, factor in columns.items():
        _scale_columns(editor.module, path, factor)
    return model.rewritten(done, graph=editor.finish(), quantizers=editor.quantizers)


def is_folded(site: str, saved: Iterable[str]) -> bool:
    """Say whether a saved model, given the names of its tensors, has this site folded."""
    return any(name.startswith(f"{_HOLDER}.{label(site)}.") for name in saved)


def weights_read(model: QuantizedEncoder, site: str) -> list[str]:
    """Return the parameters that a site is multiplied with; none where another operation reads it too."""
    readers = list(_readers(_call_of(model, site)))
    weights = [_parameter(reader.args[1]) if operation(reader) == "linear" else None for reader in readers]
    return [str(weight.target) for weight in weights if weight is not None] if all(weights) else []


def foldable(model: QuantizedEncoder, sites: Iterable[str]) -> dict[str, list[str]]:
    """Return the sites whose factors can go into weights, each with the parameters that read it.

    Only linear layers may read a site; and since a weight has one set of columns, every layer that reads the
    weight must read a site of this very fold. Layers that share parameters (ALBERT), and a head tied to the
    token embeddings, may read something else elsewhere.
    """
    reads = {site: weights_read(model, site) for site in sites}
    # a tensor cut into heads is narrower than the columns it meets
    reads = {s: weights for s, weights in reads.items() if weights and _fits(model, s, weights)}
    while True:
        inputs = {reader: site for site in reads for reader in _readers(_call_of(model, site))}
        apart = {
            path for weights in reads.values() for path in weights if not _read_within(model, path, inputs)
        }
        kept = {site: weights for site, weights in reads.items() if not apart.intersection(weights)}
        if len(kept) == len(reads):
            return kept
        reads = kept


def _fits(model: QuantizedEncoder, site: str, weights: Iterable[str]) -> bool:
    width = model.quantizers[site].site.width
    return all(model.graph.get_parameter(path).shape[-1] == width for path in weights)


def _read_within(model: QuantizedEncoder, path: str, inputs: Mapping[fx.Node, str]) -> bool:
    """Say whether all that reads a parameter, under whatever name, are linear layers among `inputs`."""
    parameter = model.graph.get_parameter(path)
    attributes = [node for node in model.graph.graph.nodes if node.op == "get_attr"]
    named = dict(model.graph.named_parameters(remove_duplicate=False))
    same = [node for node in attributes if named.get(str(node.target)) is parameter]
    return all(reader in inputs for node in same for reader in _weight_readers(node))


def _weight_readers(node: fx.Node) -> Iterator[fx.Node]:
    """Yield what reads a parameter, past its quantizer."""
    for user in node.users:
        if user.op == "call_module":
            yield from _weight_readers(user)
        else:
            yield user


def _call_of(model: QuantizedEncoder, site: str) -> fx.Node:
    wanted = f"quantizers.{label(site)}"
    nodes: Iterable[fx.Node] = model.graph.graph.nodes
    return next(node for node in nodes if node.target == wanted)


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    for user in node.users:
        if operation(user) in CARRIER:
            yield from _readers(user)
        else:
            yield user


def _parameter(weight: object) -> fx.Node | None:
    """The parameter behind a weight and its quantizer; None where the weight is computed."""
    node = weight
    while isinstance(node, fx.Node) and node.op == "call_module":
        node = node.args[0]
    return node if isinstance(node, fx.Node) and node.op == "get_attr" else None


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
            scaled = [
                _scaled(editor, path, part, node, factor, norm)
                for part, node in (("weight", weight), ("bias", bias))
            ]
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


# -- training ------------------------------------------------------------------------------------------------


def tie_norms(model: QuantizedEncoder) -> None:
    """Compute every folded norm from the norm it was made of, so that training moves the two as one.

    In place; `untie_norms` gives folded norms parameters of their own again, as they are saved and exported.
    A folded norm whose original nothing reads any more is left as it is.
    """
    graph = model.graph.graph
    for norm in [node for node in graph.nodes if _is_folded_norm(node)]:
        twins = [user for user in norm.args[0].users if operation(user) == "layer_norm" and user is not norm]
        original = next((twin for twin in twins if _is_plain(twin) and not _is_folded_norm(twin)), None)
        if original is None:
            continue
        values = [
            [model.graph.get_parameter(str(each.args[place].target)).detach() for each in (norm, original)]
            for place in (2, 3)
        ]
        path = str(norm.args[2].target).rpartition(".")[0]
        model.graph.get_submodule(path).register_buffer(_INVERSE, _ratio(values), persistent=False)
        with graph.inserting_before(norm):
            inverse = graph.get_attr(f"{path}.{_INVERSE}")
            for place in (2, 3):
                norm.update_arg(place, graph.call_function(_ATEN.mul.Tensor, (original.args[place], inverse)))
    model.graph.recompile()


def untie_norms(model: QuantizedEncoder) -> None:
    """Undo `tie_norms`: the folded norms keep the values they have now."""
    graph = model.graph.graph
    for inverse in [n for n in graph.nodes if n.op == "get_attr" and str(n.target).endswith(f".{_INVERSE}")]:
        path = str(inverse.target).rpartition(".")[0]
        factor = model.graph.get_buffer(str(inverse.target))
        for product in list(inverse.users):
            (norm,) = product.users
            place = norm.args.index(product)
            part = f"{path}.{('weight', 'bias')[place - 2]}"
            with torch.no_grad():
                model.graph.get_parameter(part).copy_(
                    model.graph.get_parameter(str(product.args[0].target)) * factor
                )
            with graph.inserting_before(norm):
                own = graph.get_attr(part)
            own.meta = dict(product.args[0].meta)
            norm.update_arg(place, own)
            graph.erase_node(product)
        graph.erase_node(inverse)
        delattr(model.graph.get_submodule(path), _INVERSE)
    model.graph.recompile()


def _is_folded_norm(node: fx.Node) -> bool:
    if operation(node) != "layer_norm" or not _is_plain(node):
        return False
    return str(node.args[2].target).startswith(f"{_HOLDER}.")  # type: ignore[union-attr]


def _ratio(values: list[list[Tensor]]) -> Tensor:
    """Return folded over original, by the weight where that is not zero, else by the bias."""
    (weight, whole_weight), (bias, whole_bias) = values
    by_bias = torch.where(whole_bias == 0, torch.ones_like(bias), bias / whole_bias)
    return torch.where(whole_weight == 0, by_bias, weight / whole_weight)
