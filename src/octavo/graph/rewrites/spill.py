"""Spilling: a tensor with extra channels, in which the channels that reach beyond its range go on.

    x ── W1 ── GELU ── h ── W2      =      x ── W1[source] ── GELU ── - offset ── clip ── h' ── W2[:, source]

`octavo.numerics.spill` has the arithmetic. Copies of a channel are rows of the linear layers that make the
tensor (two of them where a gate is multiplied) and columns of those that read it; what the copies add at rest
is taken off the readers' biases. One subtraction is new; the clipping is what the quantizer behind it does by
itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx, nn

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.rewrites.editing import Editor, label
from octavo.graph.rewrites.tracing import call_of
from octavo.graph.sites.flow import operation
from octavo.numerics.spill import Pieces
from octavo.spec import Spill

HOLDER = "spilled"
_ATEN = torch.ops.aten
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


def is_spilled(site: str, saved: Mapping[str, Tensor]) -> int:
    """Return how many channels a saved model has at this site; 0 where it was not spilled."""
    offset = saved.get(f"{HOLDER}.{label(site)}.offset")
    return 0 if offset is None else len(offset)


def spill(model: QuantizedEncoder, done: Spill, pieces: Mapping[str, Pieces]) -> QuantizedEncoder:
    """Return the same function with the channels of every site in `pieces` spilled.

    Sites that share weights must share their pieces. With zeros for pieces this is the rewrite alone, for a
    model whose parameters are still to be loaded.
    """
    reaches = spillable(model, pieces)
    work = _Spilling(model)
    for name, plan in pieces.items():
        work.spill(name, reaches[name], plan)
    return model.rewritten(done, **work.finish())


class _Spilling:
    """The rewrite in progress; a weight that several layers share is made once."""

    def __init__(self, model: QuantizedEncoder) -> None:
        self.model = model
        self.editor = Editor(model.graph, model.quantizers)
        self.nodes = {node.name: node for node in self.editor.graph.nodes}
        self.sites = {site.name: site for kind in model.sites for site in kind}
        self.of_path = {path: site.name for site in model.weight_sites for path in site.targets}
        self.made: dict[tuple[str, str], str] = {}

    def finish(self) -> dict[str, object]:
        """The changed parts of the model."""
        graph = self.editor.finish()
        return {
            "graph": graph,
            "quantizers": {name: self.editor.quantizers[name] for name in self.model.quantizers},
            "sites": tuple(tuple(self.sites[site.name] for site in kind) for kind in self.model.sites),
        }

    def spill(self, name: str, reach: Reach, plan: Pieces) -> None:
        call = self.editor.call_of(name)
        source = call.args[0]
        assert isinstance(source, fx.Node)
        width, device = int(source.meta["val"].shape[-1]), self.editor.device
        plan = replace(plan, source=plan.source.to(device), rest=plan.rest.to(device))
        index = torch.cat((torch.arange(width, device=device), plan.source))
        offset = torch.cat((torch.zeros(width, dtype=torch.float64), plan.offset)).float()
        path = f"{HOLDER}.{label(name)}"
        with self.editor.graph.inserting_before(call):
            wide = self._remake(path, reach, index, width)
            constants = {"offset": offset, "low": torch.tensor(plan.low), "high": torch.tensor(plan.high)}
            added = {
                key: self.editor.tensor(
                    f"{path}.{key}", nn.Parameter(value.float(), requires_grad=False), source
                )
                for key, value in constants.items()
            }
            moved = self.editor.call(_ATEN.sub.Tensor, wide, added["offset"])
            clipped = self.editor.call(_ATEN.clamp.Tensor, moved, added["low"], added["high"])
            whole = self._requantized(name, clipped)
        call.replace_all_uses_with(whole)
        self.editor.erase(call)
        for reader in list(_readers(whole)):
            self._widen_columns(path, reader, index, plan)
        for node in _between(whole):
            node.meta = dict(whole.meta)

    def _requantized(self, name: str, node: fx.Node) -> fx.Node:
        """Put the quantizer of a site behind a wider tensor."""
        old = self.editor.quantizers[name]
        site = replace(old.site, shape=(*old.site.shape[:-1], int(node.meta["val"].shape[-1])))
        self.sites[name] = replace(self.sites[name], shape=site.shape)
        quantizer = Quantizer(site, old.spec)
        quantizer.inplace = True  # clamp makes a tensor that nothing else reads
        return self.editor.quantize(node, quantizer.to(old.index.device))

    # -- rows: what makes the tensor -----------------------------------------------------------------------

    def _remake(self, path: str, reach: Reach, index: Tensor, width: int) -> fx.Node:
        """Compute the tensor with the channels `index`; returns its node."""
        new: dict[fx.Node, fx.Node] = {}
        for original in reach.region:
            node = self.nodes[original.name]
            if operation(node) == "linear":
                new[node] = self._wider_rows(path, node, index, width)
            elif operation(node) in _SPLITS:
                sizes = node.args[1]
                wider: object = sizes
                if operation(node) == "split":
                    wider = len(index)
                elif operation(node) == "split_with_sizes":
                    assert isinstance(sizes, list | tuple)
                    wider = [len(index)] * len(sizes)
                new[node] = self.editor.call(
                    node.target,
                    new[node.args[0]],
                    wider,
                    *node.args[2:],
                    **node.kwargs,
                )
            elif node.op == "call_module" and self.editor.quantizer_at(node) is not None:
                quantizer = self.editor.quantizer_at(node)
                assert quantizer is not None
                new[node] = self._requantized(quantizer.site.name, new[node.args[0]])
            elif node.op == "call_module":
                new[node] = self.editor.graph.call_module(str(node.target), (new[node.args[0]],))
                new[node].meta = dict(new[node.args[0]].meta)
            else:
                arguments = [self._operand(path, argument, new, index, width) for argument in node.args]
                new[node] = self.editor.call(node.target, *arguments, **node.kwargs)
        return new[node]

    def _operand(
        self, path: str, argument: object, new: Mapping[fx.Node, fx.Node], index: Tensor, width: int
    ) -> object:
        if not isinstance(argument, fx.Node):
            return argument
        if argument in new:
            return new[argument]
        if _is_vector(argument, width):  # a factor or an offset along the channels
            value = self._value(argument).detach()
            return self._tensor(path, str(argument.target), value.index_select(0, index), argument)
        return argument

    def _wider_rows(self, path: str, linear: fx.Node, index: Tensor, width: int) -> fx.Node:
        x, weight, *rest = linear.args
        assert isinstance(x, fx.Node) and isinstance(weight, fx.Node)
        rows = self._value(weight).shape[0] // width
        every = torch.cat([index + part * width for part in range(rows)])
        wide = self._weight(path, weight, 0, every, linear)
        bias = rest[0] if rest else None
        if isinstance(bias, fx.Node):
            value = self._value(bias).detach().index_select(0, every)
            bias = self._tensor(path, str(bias.target), value, linear, trained=True)
        return self.editor.call(_ATEN.linear.default, x, wide, bias)

    # -- columns: what reads it ----------------------------------------------------------------------------

    def _widen_columns(self, path: str, linear: fx.Node, index: Tensor, plan: Pieces) -> None:
        """Let a linear layer read the extra channels, less what they add at rest."""
        x, weight, *rest = linear.args
        assert isinstance(weight, fx.Node)
        value = self._value(weight).detach()
        idle = (value.double().index_select(1, plan.source) @ plan.rest).to(value)
        old = rest[0] if rest else None
        with self.editor.graph.inserting_before(linear):
            wide = self._weight(path, weight, 1, index, linear)
            if isinstance(old, fx.Node):
                bias = self._tensor(
                    path, str(old.target), self._value(old).detach() - idle, linear, trained=True
                )
            else:
                bias = self._tensor(path, f"{_path(weight)}.bias", -idle, linear, trained=True)
        linear.args = (x, wide, bias)

    # -- parameters ----------------------------------------------------------------------------------------

    def _weight(self, path: str, node: fx.Node, axis: int, index: Tensor, like: fx.Node) -> fx.Node:
        """Add the entries `index` along an axis of a weight, with a quantizer where it had one."""
        value = self._value(node).detach().index_select(axis, index).contiguous()
        origin = _path(node)
        attribute = self._tensor(path, origin, value, like, trained=True)
        name = self.of_path.get(origin)
        if name is None:
            return attribute
        target = str(attribute.target)
        self.sites[name] = replace(self.sites[name], shape=tuple(value.shape), targets=(target,))
        self.of_path[target] = name
        old = self.editor.quantizer_at(node)
        if old is None:
            return attribute
        made = self.editor.quantizers[name]
        if tuple(made.site.shape) != tuple(value.shape):
            made = Quantizer(self.sites[name], old.spec).to(old.index.device)
        return self.editor.quantize(attribute, made)

    def _tensor(self, path: str, origin: str, value: Tensor, like: fx.Node, trained: bool = False) -> fx.Node:
        """Add a parameter made of another; layers that share the other share it as well."""
        key = (origin, str(tuple(value.shape)))
        known = self.made.get(key)
        if known is not None:
            node = self.editor.graph.get_attr(known)
            node.meta = dict(self.nodes[known].meta)
            return node
        target = f"{path}.{label(origin)}"
        node = self.editor.tensor(target, nn.Parameter(value.contiguous(), requires_grad=trained), like)
        self.made[key], self.nodes[target] = target, node
        return node

    def _value(self, node: fx.Node) -> Tensor:
        return self.editor.module.get_parameter(_path(node))


# -- what can be done ----------------------------------------------------------------------------------------

_SPLITS = frozenset({"chunk", "split", "split_with_sizes"})


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
    readers = list(_readers(call))
    linear = [node for node in (*ordered, *readers) if operation(node) == "linear"]
    if not readers or any(reader not in linear for reader in readers):
        return None
    if any(_bare(node, model) is None for node in linear):
        return None
    makers = [node for node in ordered if operation(node) == "linear"]
    return Reach(ordered, tuple(_path(n.args[1]) for n in makers), tuple(_path(n.args[1]) for n in readers))


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
        elif name == "getitem" and operation(inputs[0]) in _SPLITS and _splits_evenly(inputs[0], width):
            waiting.append(inputs[0])
        elif name in _SPLITS and any(operation(user) == "getitem" for user in node.users):
            waiting.append(inputs[0])
        elif name in _ELEMENTWISE:
            waiting += [n for n in inputs if not _is_number(n) and not _is_vector(n, width)]
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


def _is_vector(node: fx.Node, width: int) -> bool:
    return node.op == "get_attr" and tuple(node.meta["val"].shape) == (width,)


def _bare(linear: fx.Node, model: QuantizedEncoder) -> str | None:
    """The parameter of a linear layer whose weight and bias are plain parameters; None for others."""
    weight, *rest = linear.args[1:]
    if not all(n is None or (isinstance(n, fx.Node) and _is_parameter(model, n)) for n in (weight, *rest)):
        return None
    return _path(weight)


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
    yield from _readers(call_of(model, site))


def _users(model: QuantizedEncoder, path: str) -> Iterator[fx.Node]:
    """Yield all that reads a parameter, under whatever name, past its quantizer."""
    parameter = model.graph.get_parameter(path)
    named = dict(model.graph.named_parameters(remove_duplicate=False))
    for node in model.graph.graph.nodes:
        if node.op == "get_attr" and named.get(str(node.target)) is parameter:
            for user in node.users:
                yield from user.users if user.op == "call_module" else (user,)


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    for user in node.users:
        if operation(user) in _CARRIED:
            yield from _readers(user)
        else:
            yield user


def _between(node: fx.Node) -> Iterator[fx.Node]:
    """Yield what carries a tensor on to its readers."""
    for user in node.users:
        if operation(user) in _CARRIED:
            yield user
            yield from _between(user)


def _path(node: object) -> str:
    """The parameter that a node, or the call of its quantizer, stands for."""
    assert isinstance(node, fx.Node)
    return _path(node.args[0]) if node.op == "call_module" else str(node.target)
