"""Pieces of a tensor: groups of its channels, each with parameters and a quantizer of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx, nn

from octavo.graph.editing import Editor
from octavo.graph.quantizer import Quantizer
from octavo.graph.sites import Site
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

    def same(self, other: Groups) -> bool:
        """Whether two cuts are one."""
        return self.sizes == other.sizes and torch.equal(self.order, other.order)


def piece_name(name: str, group: int) -> str:
    """`layers.0.ffn_input.groups.2`, or `layers.0.ffn_hidden.groups.2.weight` for a weight."""
    stem = name.removesuffix(".weight")
    return f"{stem}.groups.{group}" + name[len(stem) :]


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


def add_weight(editor: Editor, node: fx.Node, site: Site, keep: Tensor, axis: int, like: fx.Node) -> fx.Node:
    """Add the entries `keep` along `axis` of the weight at `node` as `site`, quantized on the same grid.

    Arguments:
        node: a parameter, or the call of its quantizer (see `Editor.parameter`).
        like: any activation of the graph.
    """
    found = editor.parameter(node)
    assert found is not None
    parameter, whole = found
    # On its grid already: what AdaRound or training decided about rounding is kept.
    value = parameter if whole is None or whole.constant is None else whole.constant
    added = add_parameter(editor, site.targets[0], value, keep, axis, like)
    if whole is None:
        return added
    quantizer = _weight_piece(whole, site, axis, keep)
    if whole.constant is not None:
        quantizer.constant = editor.module.get_parameter(site.targets[0]).detach()
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
    piece.state = whole.state
    return piece.to(whole.index.device)
