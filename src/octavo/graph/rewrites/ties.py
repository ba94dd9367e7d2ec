"""Training folded norms: a second norm moves with the one it was made of, whose function it shares.

weight = whole weight · inverse      bias = whole bias · inverse + offset
"""

from __future__ import annotations

import torch
from torch import Tensor, fx

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.rewrites.channels import is_plain_norm
from octavo.graph.rewrites.fold import is_folded_norm
from octavo.graph.sites.flow import operation

_INVERSE, _OFFSET = "tied_inverse", "tied_offset"
_WEIGHT, _BIAS = 2, 3
_NAMES = {_WEIGHT: "weight", _BIAS: "bias"}
_ATEN = torch.ops.aten


def tie_norms(model: QuantizedEncoder) -> None:
    """Compute every folded norm from the norm it was made of, so that training moves the two as one.

    In place; `untie_norms` gives folded norms parameters of their own again, as they are saved and exported.
    A folded norm whose original nothing reads any more is left as it is, and so is a bias that it lacked.
    """
    graph = model.graph.graph
    for norm in [node for node in graph.nodes if is_folded_norm(node)]:
        twins = [user for user in norm.args[0].users if operation(user) == "layer_norm" and user is not norm]
        original = next((twin for twin in twins if is_plain_norm(twin) and not is_folded_norm(twin)), None)
        if original is not None:
            _tie(model, norm, original)
    model.graph.recompile()


def _tie(model: QuantizedEncoder, norm: fx.Node, original: fx.Node) -> None:
    graph = model.graph.graph
    weight, whole_weight = (_value(model, each, _WEIGHT) for each in (norm, original))
    bias, whole_bias = (_value(model, each, _BIAS) for each in (norm, original))
    assert weight is not None and whole_weight is not None
    inverse = _ratio(weight, whole_weight, bias, whole_bias)
    offset = None if bias is None or whole_bias is None else bias - whole_bias * inverse
    path = str(norm.args[_WEIGHT].target).rpartition(".")[0]  # type: ignore[union-attr]
    holder = model.graph.get_submodule(path)
    holder.register_buffer(_INVERSE, inverse, persistent=False)
    holder.register_buffer(_OFFSET, offset, persistent=False)
    with graph.inserting_before(norm):
        factor = graph.get_attr(f"{path}.{_INVERSE}")
        scaled = graph.call_function(_ATEN.mul.Tensor, (original.args[_WEIGHT], factor))
        norm.update_arg(_WEIGHT, scaled)
        if offset is not None:
            scaled = graph.call_function(_ATEN.mul.Tensor, (original.args[_BIAS], factor))
            moved = graph.get_attr(f"{path}.{_OFFSET}")
            norm.update_arg(_BIAS, graph.call_function(_ATEN.add.Tensor, (scaled, moved)))


def untie_norms(model: QuantizedEncoder) -> None:
    """Undo `tie_norms`: the folded norms keep the values they have now."""
    graph = model.graph.graph
    tied = [n for n in graph.nodes if n.op == "get_attr" and str(n.target).endswith(f".{_INVERSE}")]
    for factor in tied:
        path = str(factor.target).rpartition(".")[0]
        holder = model.graph.get_submodule(path)
        for product in list(factor.users):
            _untie(model, path, product)
        graph.eliminate_dead_code()
        delattr(holder, _INVERSE)
        delattr(holder, _OFFSET)
    model.graph.recompile()


def _untie(model: QuantizedEncoder, path: str, product: fx.Node) -> None:
    """Give a norm its own weight or bias again, which `product` and perhaps a sum behind it compute."""
    graph = model.graph.graph
    (user,) = product.users
    is_bias = operation(user) == "add"
    computed = user if is_bias else product
    (norm,) = computed.users
    place = _BIAS if is_bias else _WEIGHT
    whole = model.graph.get_parameter(str(product.args[0].target))  # type: ignore[union-attr]
    holder = model.graph.get_submodule(path)
    value = whole * holder.get_buffer(_INVERSE)
    with torch.no_grad():
        own = model.graph.get_parameter(f"{path}.{_NAMES[place]}")
        own.copy_(value + holder.get_buffer(_OFFSET) if is_bias else value)
    with graph.inserting_before(norm):
        node = graph.get_attr(f"{path}.{_NAMES[place]}")
    node.meta = dict(product.args[0].meta)  # type: ignore[union-attr]
    norm.update_arg(place, node)


def _value(model: QuantizedEncoder, norm: fx.Node, place: int) -> Tensor | None:
    node = norm.args[place] if len(norm.args) > place else None
    return model.graph.get_parameter(str(node.target)).detach() if isinstance(node, fx.Node) else None


def _ratio(weight: Tensor, whole_weight: Tensor, bias: Tensor | None, whole_bias: Tensor | None) -> Tensor:
    """Return folded over original, by the weight where that is not zero, else by the bias."""
    rest = torch.ones_like(weight)
    if bias is not None and whole_bias is not None:
        rest = torch.where(whole_bias == 0, rest, bias / whole_bias)
    return torch.where(whole_weight == 0, rest, weight / whole_weight)
