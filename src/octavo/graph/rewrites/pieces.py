"""Pieces of a tensor: groups of its channels, each with parameters and a quantizer of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx, nn

from octavo.errors import SpecError
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.rewrites.editing import Editor, label
from octavo.graph.sites.flow import operation
from octavo.graph.sites.site import Site
from octavo.numerics import Affine
from octavo.spec import PerChannel, PerTensor


@dataclass(frozen=True, eq=False)
class Groups:
    """How channels are cut: `order` (width,) lists them group by group, `sizes` says how many each has."""

    order: Tensor
    sizes: tuple[int, ...]

    @staticmethod
    def of(index: Tensor) -> Groups:
        """The cut that an index (width,), the group of every channel, asks for; channels keep their order."""
        return Groups(torch.argsort(index, stable=True), tuple(torch.bincount(index).tolist()))

    @property
    def is_sorted(self) -> bool:
        """Whether the groups are runs of channels already, so that nothing needs to be moved."""
        return torch.equal(self.order, torch.arange(len(self.order), device=self.order.device))

    @property
    def inverse(self) -> Tensor:
        """The order that undoes `order`."""
        return torch.argsort(self.order)

    def channels(self) -> tuple[Tensor, ...]:
        """The channels of each group."""
        return torch.split(self.order, list(self.sizes))

    @property
    def largest(self) -> int:
        """The group with the most channels."""
        return max(range(len(self.sizes)), key=self.sizes.__getitem__)

    def bundles(self, narrow: int) -> list[tuple[int, ...]]:
        """The groups that go through a product together: all of at most `narrow` channels but the largest."""
        thin = tuple(
            group for group, size in enumerate(self.sizes) if size <= narrow and group != self.largest
        )
        wide: list[tuple[int, ...]] = [(group,) for group in range(len(self.sizes)) if group not in thin]
        return [*wide, thin] if thin else wide

    def same(self, other: Groups) -> bool:
        """Whether two cuts are one."""
        return self.sizes == other.sizes and torch.equal(self.order, other.order)


def piece_name(name: str, *groups: int) -> str:
    """`layers.0.ffn_input.groups.2`, or `layers.0.ffn_hidden.groups.2_3.weight` for two of a weight."""
    stem = name.removesuffix(".weight")
    return f"{stem}.groups.{'_'.join(map(str, groups))}" + name[len(stem) :]


# -- activations -------------------------------------------------------------------------------------------


def activation_piece(whole: Quantizer, group: int, size: int, made_by: fx.Node) -> Quantizer:
    """A per-tensor quantizer for one group of a per-group quantizer, with that group's range."""
    site = replace(
        whole.site,
        name=piece_name(whole.site.name, group),
        shape=(*whole.site.shape[:-1], size),
        targets=(made_by.name,),
    )
    piece = Quantizer(site, replace(whole.spec, granularity=PerTensor()))
    if whole.has_range:
        part = slice(group, group + 1)
        piece.set_affine(
            Affine(scale=whole.scale[part], zero_point=whole.zero_point[part], low=whole.low, high=whole.high)
        )
    return _settled(piece, whole)


# -- parameters --------------------------------------------------------------------------------------------


def add_weight(
    editor: Editor, node: fx.Node, site: Site, keep: Tensor, axis: int, like: fx.Node, zero: Tensor | None
) -> fx.Node:
    """Add the entries `keep` along `axis` of the weight at `node` as `site`, quantized on the same grid.

    Arguments:
        node: a parameter, or the call of its quantizer (see `Editor.parameter`).
        like: any activation of the graph.
        zero: which of these entries become 0, a number of every grid.
    """
    found = editor.parameter(node)
    assert found is not None
    parameter, whole = found
    # On its grid already: what AdaRound or training decided about rounding is kept.
    value = parameter if whole is None or whole.constant is None else whole.constant
    if zero is not None:
        value = value.detach().index_fill(axis, zero.to(value.device), 0)
    added = add_parameter(editor, site.targets[0], value, keep, axis, like)
    if whole is None:
        return added
    quantizer = _weight_piece(whole, site, axis, keep)
    if whole.constant is not None:
        quantizer.keep(editor.module.get_parameter(site.targets[0]))
    return editor.quantize(added, quantizer)


def add_parameter(
    editor: Editor, path: str, value: Tensor, keep: Tensor, axis: int, like: fx.Node
) -> fx.Node:
    """Add the entries `keep` along `axis` of a tensor as a parameter."""
    piece = value.detach().index_select(axis, keep.to(value.device)).contiguous()
    return editor.tensor(path, nn.Parameter(piece), like)


def _weight_piece(whole: Quantizer, site: Site, axis: int, keep: Tensor) -> Quantizer:
    """A quantizer for part of a weight: the very scales that the whole weight has there."""
    if whole.axis is None or whole.axis % len(site.shape) != axis:  # what is cut has no scales of its own
        piece = Quantizer(site, whole.spec)
        if whole.has_range:
            piece.set_affine(whole.affine())
        return _settled(piece, whole)
    piece = Quantizer(site, replace(whole.spec, granularity=PerChannel(axis=axis)))
    if whole.has_range:
        channel = whole.index[keep.to(whole.index.device)]
        grid = replace(whole.affine(), scale=whole.scale[channel], zero_point=whole.zero_point[channel])
        piece.set_affine(grid)
    return _settled(piece, whole)


def _settled(piece: Quantizer, whole: Quantizer) -> Quantizer:
    piece.take_state(whole)
    return piece.to(whole.index.device)


HOLDER = "split"
"""The submodule of a graph that holds the parameters a split makes."""


class WeightCutter:
    """Adds parts of parameters to a graph and remembers which sites they replace.

    Attributes:
        new_sites: for the name of every site that was cut, the sites made of it.
    """

    def __init__(self, editor: Editor, weight_sites: tuple[Site, ...]) -> None:
        self.editor = editor
        self.new_sites: dict[str, list[Site]] = {}
        self._sites = {target: site for site in weight_sites for target in site.targets}

    def weight(
        self,
        node: object,
        reader: Site,
        groups: tuple[int, ...],
        keep: Tensor,
        axis: int,
        like: fx.Node,
        zero: Tensor | None = None,
    ) -> fx.Node:
        """Add the entries `keep` along `axis` of a weight.

        Arguments:
            node: the weight, or the call of its quantizer.
            reader: the activation site for whose sake it is cut.
            groups: which groups of that site; none permutes the weight whole.
            like: any activation of the graph.
            zero: which of these entries become 0.
        """
        assert isinstance(node, fx.Node)
        whole = self._sites[_path(node)]
        shape = list(whole.shape)
        shape[axis] = len(keep)
        name = self._free_name(whole.name, reader, groups)
        target = f"{HOLDER}.{label(name)}"
        piece = replace(whole, name=name, shape=tuple(shape), targets=(target,))
        self.new_sites.setdefault(whole.name, []).append(piece)
        self._sites[target] = piece
        return add_weight(self.editor, node, piece, keep, axis, like, zero)

    def bias(self, node: object, weight: fx.Node, keep: Tensor, like: fx.Node) -> fx.Node:
        """Add the entries `keep` of a bias, named for the weight it goes with."""
        assert isinstance(node, fx.Node)
        path = _path(weight).removesuffix("_weight") + "_bias"
        whole = self.editor.module.get_parameter(_path(node))
        return add_parameter(self.editor, path, whole, keep, 0, like)

    def is_plain_linear(self, node: fx.Node) -> bool:
        """Whether a node multiplies by a parameter that is a site, and adds a parameter or nothing."""
        if operation(node) != "linear":
            return False
        weight, *bias = node.args[1:]
        return self._is_site(weight) and all(b is None or self._is_parameter(b) for b in bias)

    def is_plain_norm(self, node: fx.Node) -> bool:
        """Whether a node is a LayerNorm with a weight that is a site and with a bias."""
        if operation(node) != "layer_norm" or len(node.args) < 4:
            return False
        return self._is_site(node.args[2]) and self._is_parameter(node.args[3])

    def permuted_stem(self, node: object, reader: Site) -> str:
        """How the parameters begin that a weight becomes when it is permuted whole, and perhaps cut later."""
        assert isinstance(node, fx.Node)
        name = self._free_name(self._sites[_path(node)].name, reader, ())
        return f"{HOLDER}.{label(name.removesuffix('weight'))}"

    def _free_name(self, whole: str, reader: Site, groups: tuple[int, ...]) -> str:
        """The new name of a weight; where layers share it, the piece of each is named for its own layer."""
        leaf = whole.removesuffix(".weight").rpartition(".")[2]
        for base in (whole, f"{reader.name.rpartition('.')[0]}.{leaf}.weight"):
            permuted = f"{base.removesuffix('.weight')}.permuted.weight"
            name = piece_name(base, *groups) if groups else permuted
            if f"{HOLDER}.{label(name)}" not in self._sites:
                return name
        raise SpecError(f"{whole} is read twice by {reader.name}; use per-tensor ranges there")

    def _is_site(self, node: object) -> bool:
        return isinstance(node, fx.Node) and self._is_parameter(node) and _path(node) in self._sites

    def _is_parameter(self, node: object) -> bool:
        return isinstance(node, fx.Node) and self.editor.parameter(node) is not None


def _path(node: fx.Node) -> str:
    """The parameter that a node or the quantizer's call at it stands for."""
    source = node.args[0] if node.op == "call_module" else node
    assert isinstance(source, fx.Node)
    return str(source.target)
