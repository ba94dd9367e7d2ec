"""Where a tensor can spill: what makes it, what reads it, and whether anything else would notice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torch import Tensor, fx, nn

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.rewrites.tracing import call_of
from octavo.graph.sites.flow import operation

SPLITS = frozenset({"chunk", "split", "split_with_sizes"})
# What gives every channel of its result from the same channel of its operands.
_ELEMENTWISE = frozenset(
    "gelu relu silu tanh sigmoid erf exp neg mul add sub rsub div pow square clamp clamp_min clamp_max "
    "hardtanh relu6 leaky_relu elu softplus clone contiguous to _to_copy alias detach".split()
)
_CARRIED = frozenset({"dropout", "clone", "contiguous", "alias", "detach"})


@dataclass(frozen=True, eq=False)
class Reach:
    """What a spill at a site touches.

    Attributes:
        region: the operations that make the tensor, in order, from linear layers on.
        makers: the parameters of those linear layers; readers: of the linear layers that read the site.
    """

    region: tuple[fx.Node, ...]
    makers: tuple[str, ...]
    readers: tuple[str, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        """All weights that a spill changes."""
        return (*self.makers, *self.readers)


def spillable(model: QuantizedEncoder, sites: Iterable[str]) -> dict[str, Reach]:
    """Return the sites that can spill: linear layers make them, and only linear layers read them.

    A weight has one set of rows and columns, so all that reads a weight must be part of this very spill.
    """
    found = {}
    for name in sites:
        reach = _reach(model, name)
        if reach is not None:
            found[name] = reach
    while True:
        linears = {node for name, reach in found.items() for node in _linears(model, name, reach)}
        apart = {
            path
            for reach in found.values()
            for path in reach.parameters
            if any(user not in linears for user in _users(model, path))
        }
        kept = {name: reach for name, reach in found.items() if not apart.intersection(reach.parameters)}
        if len(kept) == len(found):
            return kept
        found = kept


def _reach(model: QuantizedEncoder, site: str) -> Reach | None:
    call = call_of(model, site)
    source = call.args[0]
    assert isinstance(source, fx.Node)
    width = model.quantizers[site].site.width
    if width is None or source.meta["val"].shape[-1] != width:
        return None
    region = _region(model, source, width)
    if region is None or any(
        user not in region and user is not call for node in region for user in node.users
    ):
        return None
    order = {node: position for position, node in enumerate(model.graph.graph.nodes)}
    ordered = tuple(sorted(region, key=order.__getitem__))
    readers = list(readers_of(call))
    linear = [node for node in (*ordered, *readers) if operation(node) == "linear"]
    if not readers or any(reader not in linear for reader in readers):
        return None
    if any(_bare(node, model) is None for node in linear):
        return None
    makers = [node for node in ordered if operation(node) == "linear"]
    return Reach(
        ordered, tuple(path_of(n.args[1]) for n in makers), tuple(path_of(n.args[1]) for n in readers)
    )


def _region(model: QuantizedEncoder, start: fx.Node, width: int) -> set[fx.Node] | None:
    """The operations behind a tensor, back to linear layers; None where something else is among them."""
    found: set[fx.Node] = set()
    waiting = [start]
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        found.add(node)
        name = operation(node)
        if name == "linear":
            continue
        inputs = node.all_input_nodes
        if node.op == "call_module":
            quantizer = model.graph.get_submodule(str(node.target))
            if name != "dropout" and not _is_plain(quantizer):
                return None
            waiting += inputs
        elif name == "getitem" and operation(inputs[0]) in SPLITS and _splits_evenly(inputs[0], width):
            waiting.append(inputs[0])
        elif name in SPLITS and any(operation(user) == "getitem" for user in node.users):
            waiting.append(inputs[0])
        elif name in _ELEMENTWISE:
            waiting += [n for n in inputs if not _is_number(n) and not is_vector(n, width)]
        else:
            return None
    return found


def _splits_evenly(node: fx.Node, width: int) -> bool:
    parts, dim = node.meta["val"], node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
    rank = parts[0].dim()
    return dim in (-1, rank - 1) and all(part.shape[-1] == width for part in parts)


def _is_plain(module: nn.Module) -> bool:
    """Whether a module is a quantizer of one static range, which extra channels can share."""
    return isinstance(module, Quantizer) and module.spec.granularity.has_one_scale


def _is_number(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, Tensor) or (value.numel() == 1 and value.dim() == 0)


def is_vector(node: fx.Node, width: int) -> bool:
    return node.op == "get_attr" and tuple(node.meta["val"].shape) == (width,)


def _bare(linear: fx.Node, model: QuantizedEncoder) -> str | None:
    """The parameter of a linear layer whose weight and bias are plain parameters; None for others."""
    weight, *rest = linear.args[1:]
    if not all(n is None or (isinstance(n, fx.Node) and _is_parameter(model, n)) for n in (weight, *rest)):
        return None
    return path_of(weight)


def _is_parameter(model: QuantizedEncoder, node: fx.Node) -> bool:
    while node.op == "call_module" and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node.op == "get_attr" and isinstance(_attribute(model.graph, str(node.target)), nn.Parameter)


def _attribute(module: nn.Module, path: str) -> object:
    found: object = module
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _linears(model: QuantizedEncoder, site: str, reach: Reach) -> Iterator[fx.Node]:
    yield from (node for node in reach.region if operation(node) == "linear")
    yield from readers_of(call_of(model, site))


def _users(model: QuantizedEncoder, path: str) -> Iterator[fx.Node]:
    """Yield all that reads a parameter, under whatever name, past its quantizer."""
    parameter = model.graph.get_parameter(path)
    named = dict(model.graph.named_parameters(remove_duplicate=False))
    for node in model.graph.graph.nodes:
        if node.op == "get_attr" and named.get(str(node.target)) is parameter:
            for user in node.users:
                yield from user.users if user.op == "call_module" else (user,)


def readers_of(node: fx.Node) -> Iterator[fx.Node]:
    for user in node.users:
        if operation(user) in _CARRIED:
            yield from readers_of(user)
        else:
            yield user


def carriers_of(node: fx.Node) -> Iterator[fx.Node]:
    """Yield what carries a tensor on to its readers."""
    for user in node.users:
        if operation(user) in _CARRIED:
            yield user
            yield from carriers_of(user)


def path_of(node: object) -> str:
    """The parameter that a node, or the call of its quantizer, stands for."""
    assert isinstance(node, fx.Node)
    return path_of(node.args[0]) if node.op == "call_module" else str(node.target)
