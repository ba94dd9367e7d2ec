"""Folding: factors and offsets of an activation's channels moved into what makes it and what reads it.

    LayerNorm(r; g, b) ── x ── W, c   =   LayerNorm(r; g/s, (b-z)/s) ── (x-z)/s ── W diag(s), c + W z

Both compute the same; but (x-z)/s can have one range where x had outliers in few dimensions, so a per-tensor
quantizer there acts as one with a scale per embedding dimension (section 4 of the paper). A residual sum that
reads x as well goes on reading it from the norm as it was. Where a linear layer makes x, its rows take the
factors; where neither does, x is multiplied.

What a rewrite adds to the graph are tensors under `folded.<site>`; their names say what it was, so that a
saved model is rewritten again by them: `weight` and `bias` of a second norm, `inverse` and `offset` of a
multiplication and an addition, `reader_0` or `maker_0` for a linear layer that got a bias.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.rewrites.channels import COLUMNS, Channels, Part, Reader, Rows, written_norm
from octavo.graph.rewrites.editing import Editor, label
from octavo.graph.rewrites.tracing import call_of
from octavo.graph.sites.flow import operation
from octavo.spec import Pass

FOLDED = "folded"
"""The submodule of a graph that holds what folding adds."""

_ATEN = torch.ops.aten


@dataclass(frozen=True, eq=False)
class Change:
    """What is done to channels: x becomes (x - shift) / factor, both (width,); no shift is None."""

    factor: Tensor
    shift: Tensor | None = None


def fold(
    model: QuantizedEncoder, done: Pass, changes: Sequence[tuple[Sequence[Channels], Change]]
) -> QuantizedEncoder:
    """Return the same function with the channels of every group changed.

    Arguments:
        changes: groups of channels that share weights, as `groups_of` finds them, each with its change.
    """
    editor = _Folding(model)
    for group, change in changes:
        for channels in group:
            editor.change(channels, change)
    return model.rewritten(done, graph=editor.finish(), quantizers=editor.quantizers)


def refold(
    model: QuantizedEncoder, done: Pass, channels: Iterable[Channels], saved: Collection[str]
) -> QuantizedEncoder:
    """Return a model with the operations that folding added to one that was saved with these tensors.

    Its parameters are still to be loaded.
    """
    editor = _Folding(model)
    for each in channels:
        editor.repeat(each, saved)
    return model.rewritten(done, graph=editor.finish(), quantizers=editor.quantizers)


class _Folding(Editor):
    """A graph whose channels are changed one after another; parameters that layers share change once."""

    def __init__(self, model: QuantizedEncoder) -> None:
        super().__init__(model.graph, model.quantizers)
        self._copies = dict(zip(model.graph.graph.nodes, self.graph.nodes, strict=True))
        self._model = model
        self._changed: set[tuple[str, Part]] = set()

    def change(self, channels: Channels, change: Change) -> None:
        """Divide channels where they are made and multiply them where they are read."""
        name = folded_name(channels)
        for number, maker in enumerate(channels.makers):
            self._divide_rows(f"{name}.maker_{number}", maker, change)
        if not channels.makers:
            (site,) = channels.sites
            norm = None if channels.norm is None else self._copies[channels.norm]
            self._make(name, site, norm, change)
        for number, reader in enumerate(channels.readers):
            self._multiply_columns(f"{name}.reader_{number}", reader, change)

    def repeat(self, channels: Channels, saved: Collection[str]) -> None:
        """Add what a saved model shows was added, with neutral values."""
        name = folded_name(channels)
        parts = {key.removeprefix(f"{name}.") for key in saved if key.startswith(f"{name}.")}
        ones, zeros = torch.ones(channels.width), torch.zeros(channels.width)
        neutral = Change(ones, zeros if parts & {"bias", "offset"} else None)
        if "weight" in parts or "inverse" in parts:
            (site,) = channels.sites
            norm = self._copies[channels.norm] if channels.norm is not None and "weight" in parts else None
            self._make(name, site, norm, neutral)
        makers, readers = ([layer.node for layer in each] for each in (channels.makers, channels.readers))
        for kind, layers in (("maker", makers), ("reader", readers)):
            for number, node in enumerate(layers):
                if f"{kind}_{number}" in parts:
                    linear = self._copies[node]
                    self._new_bias(
                        f"{name}.{kind}_{number}", linear, torch.zeros(linear.meta["val"].shape[-1])
                    )

    # -- making --------------------------------------------------------------------------------------------

    def _make(self, name: str, site: str, norm: fx.Node | None, change: Change) -> None:
        """Let a quantizer read changed channels: from a second norm, or by a multiplication."""
        call = self._copies[call_of(self._model, site)]
        source = call.args[0]
        assert isinstance(source, fx.Node)
        with self.graph.inserting_before(call):
            made = (
                self._multiplied(name, source, change) if norm is None else self._normed(name, norm, change)
            )
        call.replace_input_with(source, made)

    def _multiplied(self, name: str, source: fx.Node, change: Change) -> fx.Node:
        made = self._call_with(_ATEN.mul.Tensor, source, f"{name}.inverse", 1 / change.factor)
        if change.shift is None:
            return made
        return self._call_with(_ATEN.add.Tensor, made, f"{name}.offset", -change.shift / change.factor)

    def _call_with(self, function: Any, node: fx.Node, path: str, value: Tensor) -> fx.Node:
        constant = nn.Parameter(value.clone(), requires_grad=False)
        return self.call(function, node, self.tensor(path, constant, node))

    def _normed(self, name: str, norm: fx.Node, change: Change) -> fx.Node:
        written = written_norm(norm)
        if written is None:
            x, shape, weight, *rest = norm.args
            bias = rest[0] if rest else None
            parts = [
                self._part(f"{name}.weight", weight, change, norm, shift=False),
                self._part(f"{name}.bias", bias, change, norm, shift=True),
            ]
            return self.call(_ATEN.layer_norm.default, x, shape, *parts, *rest[1:])
        product, place = written
        operands: list[Any] = list(product.args)
        operands[place] = self._part(f"{name}.weight", product.args[place], change, norm, shift=False)
        made = self.call(_ATEN.mul.Tensor, *operands)
        if product is norm:
            return made
        offset = self._part(f"{name}.bias", norm.args[1], change, norm, shift=True)
        return self.call(_ATEN.add.Tensor, made, offset)

    def _part(self, path: str, node: object, change: Change, like: fx.Node, *, shift: bool) -> fx.Node | None:
        """A norm's weight or bias for changed channels; a bias that was missing is minus the offset."""
        offset = change.shift if shift else None
        if node is None and offset is None:
            return None
        if node is None:
            assert offset is not None
            value = torch.zeros_like(offset)
        else:
            assert isinstance(node, fx.Node)
            value = self.module.get_parameter(str(node.target)).detach()
        shifted = value if offset is None else value - offset.to(value)
        return self.tensor(path, nn.Parameter(shifted / change.factor.to(value)), like)

    # -- linear layers -------------------------------------------------------------------------------------

    def _divide_rows(self, path: str, maker: Rows, change: Change) -> None:
        factor = change.factor[maker.channels]
        shift = None if change.shift is None or not maker.affine else change.shift[maker.channels]
        factor = 1 / factor if maker.inverse else factor
        weight = self._own(maker.weight, maker.part)
        if weight is not None:
            weight[maker.rows] /= factor.to(weight)[:, None]
        linear = self._copies[maker.node]
        bias = _bias_path(linear)
        if bias is None and shift is not None:
            whole = torch.zeros(linear.meta["val"].shape[-1])
            whole[maker.rows] = -shift / factor
            self._new_bias(path, linear, whole)
        elif bias is not None and (value := self._own(bias, maker.part)) is not None:
            offset = 0.0 if shift is None else shift.to(value)
            value[maker.rows] = (value[maker.rows] - offset) / factor.to(value)

    def _multiply_columns(self, path: str, reader: Reader, change: Change) -> None:
        factor = change.factor[reader.columns]
        linear = self._copies[reader.node]
        weight = self.module.get_parameter(reader.weight)
        if change.shift is not None:
            # before the columns change; where they have, a layer that shares them had its bias changed too
            already = (reader.weight, COLUMNS) in self._changed
            divisor = factor if already else torch.ones_like(factor)
            moved = (weight.detach() / divisor.to(weight)) @ change.shift[reader.columns].to(weight)
            bias = _bias_path(linear)
            if bias is None:
                self._new_bias(path, linear, moved)
            elif (value := self._own(bias, COLUMNS)) is not None:
                value += moved
        own = self._own(reader.weight, COLUMNS)
        if own is not None:
            own *= factor.to(own)

    def _own(self, path: str, part: Part) -> Tensor | None:
        """A parameter's values, to be changed here alone; None where these were changed for another layer."""
        if (path, part) in self._changed:
            return None
        named = dict(self.module.named_parameters(remove_duplicate=False))
        same = [name for name, parameter in named.items() if parameter is named[path]]
        self._changed |= {(name, part) for name in same}
        parameter = nn.Parameter(named[path].detach().clone(), requires_grad=named[path].requires_grad)
        for name in same:
            parents, _, leaf = name.rpartition(".")
            setattr(self.module.get_submodule(parents), leaf, parameter)
        return parameter.data

    def _new_bias(self, path: str, linear: fx.Node, value: Tensor) -> None:
        with self.graph.inserting_before(linear):
            bias = self.tensor(path, nn.Parameter(value.clone()), linear)
        linear.args = (*linear.args[:2], bias)


def folded_name(channels: Channels) -> str:
    """The path of the tensors that are added for channels: the first of their sites names them."""
    return f"{FOLDED}.{label(next(iter(channels.sites)))}"


def is_folded(channels: Channels, saved: Mapping[str, Tensor] | Collection[str]) -> bool:
    """Say whether a saved model, given the names of its tensors, has something added for these channels."""
    return any(name.startswith(f"{folded_name(channels)}.") for name in saved)


def _bias_path(linear: fx.Node) -> str | None:
    bias = linear.args[2] if len(linear.args) > 2 else None
    return str(bias.target) if isinstance(bias, fx.Node) else None


def is_folded_norm(node: fx.Node) -> bool:
    """Say whether a node is a second norm that folding made."""
    if operation(node) != "layer_norm" or not isinstance(node.args[2], fx.Node):
        return False
    return node.args[2].op == "get_attr" and str(node.args[2].target).startswith(f"{FOLDED}.")
