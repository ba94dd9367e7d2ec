"""Spilling: a tensor with extra channels, in which the channels that reach beyond its range go on.

    x ── W1 ── GELU ── h ── W2      =      x ── W1[source] ── GELU ── - offset ── clip ── h' ── W2[:, source]

`octavo.numerics.spill` has the arithmetic. Copies of a channel are rows of the linear layers that make the
tensor (two of them where a gate is multiplied) and columns of those that read it; what the copies add at rest
is taken off the readers' biases. One subtraction is new; the clipping is what the quantizer behind it does by
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, fx, nn

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.rewrites.editing import Editor, label
from octavo.graph.rewrites.reach import SPLITS, Reach, carriers_of, is_vector, path_of, readers_of, spillable
from octavo.graph.sites.flow import operation
from octavo.numerics.spill import Pieces
from octavo.spec import Spill

HOLDER = "spilled"
_ATEN = torch.ops.aten


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
        for reader in list(readers_of(whole)):
            self._widen_columns(path, reader, index, plan)
        for node in carriers_of(whole):
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
            elif operation(node) in SPLITS:
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
        if is_vector(argument, width):  # a factor or an offset along the channels
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
                bias = self._tensor(path, f"{path_of(weight)}.bias", -idle, linear, trained=True)
        linear.args = (x, wide, bias)

    # -- parameters ----------------------------------------------------------------------------------------

    def _weight(self, path: str, node: fx.Node, axis: int, index: Tensor, like: fx.Node) -> fx.Node:
        """Add the entries `index` along an axis of a weight, with a quantizer where it had one."""
        value = self._value(node).detach().index_select(axis, index).contiguous()
        origin = path_of(node)
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
        return self.editor.module.get_parameter(path_of(node))
