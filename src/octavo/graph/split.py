"""The per-tensor form of per-group activations: the paper's figure on simulating PEG with per-tensor operations.

Section 4 of the paper: the output of the first LayerNorm is permuted and cut into K pieces, the first linear layer of the
FFN is decomposed by columns and its K results summed, the second by rows and its K results concatenated, and the inverse
permutation comes before the next LayerNorm. Every piece has a quantizer with one scale.

    r ── gather ── LayerNorm' ──┬─ x0 ── W1[:, 0] ─┐                  ┌─ W2[0, :] ── h0 ── + x0 ── y0 ─┐
                                ├─ x1 ── W1[:, 1] ─┴─ sum ── GELU ────┴─ W2[1, :] ── h1 ── + x1 ── y1 ─┴─ cat ── gather⁻¹ ──

Folded into parameters: LayerNorm' has permuted weight and bias (its statistics do not change under a permutation), W1
permuted columns, W2 permuted rows and bias. Two gathers a layer remain, and none without a permutation: one before the first
LayerNorm, because its input is also a sum with the layer's input, which others read; one before the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor, fx

from octavo.errors import SpecError
from octavo.graph.editing import Editor, label
from octavo.graph.flow import LINEAR, MATMUL, operation
from octavo.graph.pieces import Groups, activation_piece, add_parameter, add_weight, piece_name
from octavo.graph.quantized import QuantizedEncoder
from octavo.graph.quantizer import Quantizer
from octavo.graph.sites import Site
from octavo.graph.split_check import check_split, grouped

_ATEN = torch.ops.aten
_HOLDER = "split"


def split_groups(model: QuantizedEncoder) -> QuantizedEncoder:
    """A model of the same function in which every activation quantizer is per tensor; `model` stays as it is.

    Every site with groups becomes sites `<name>.groups.0`, `.1`, …; a linear layer that reads it is cut by columns, one that makes
    it by rows, and their weights become `<name>.groups.0.weight` and so on, on the scales they had. Outputs equal
    those of `model` up to the order of float additions.
    """
    check_split(model)
    return apply_split(model)


def apply_split(model: QuantizedEncoder) -> QuantizedEncoder:
    """The rewrite without its checks: also for a model whose ranges are still to be loaded."""
    splitter = _Splitter(model)
    for quantizer in grouped(model).values():
        splitter.split(quantizer.site)
    for join in splitter.joins:
        splitter.cut_readers(join)
    parts = {field.name: getattr(model, field.name) for field in fields(model)}
    indices = {name: quantizer.index for name, quantizer in grouped(model).items()}
    return QuantizedEncoder(**parts | splitter.finish() | {"group_index": indices})


class _Splitter:
    """The rewrite in progress.

    First every grouped quantizer becomes pieces and a join, which stands for the whole tensor in its original order; then the
    readers of joins that can read pieces do, and joins that nobody reads disappear.
    """

    def __init__(self, model: QuantizedEncoder) -> None:
        self.model = model
        self.editor = Editor(model.graph, model.quantizers)
        self.joins: dict[fx.Node, tuple[Groups, list[fx.Node], Site]] = {}
        self.new_sites: dict[str, list[Site]] = {}  # the sites that replace a site
        self.orders: dict[tuple[int, ...], str] = {}
        self.paths = {target: site for site in model.weight_sites for target in site.targets}

    def finish(self) -> dict[str, object]:
        """The changed parts of the model."""
        graph = self.editor.finish()
        used = {str(node.target) for node in graph.graph.nodes}
        kept = {n: q for n, q in self.editor.quantizers.items() if f"quantizers.{label(n)}" in used}
        activations, weights = (tuple(self._replaced(sites, used)) for sites in self.model.sites)
        names = [site.name for site in (*activations, *weights)]
        quantizers = {name: kept[name] for name in names if name in kept}
        return {
            "graph": graph,
            "quantizers": quantizers,
            "sites": (activations, weights),
            "transforms": (*self.model.transforms, "split"),
        }

    def _replaced(self, sites: Sequence[Site], used: set[str]) -> list[Site]:
        """The sites with pieces, and pieces of pieces, in the place of what was cut."""
        result = []
        for site in sites:
            pieces = self.new_sites.get(site.name, [])
            if not pieces or (site.kind == "weight" and used.intersection(site.targets)):
                result.append(site)
            result += self._replaced(pieces, used)
        return result

    # -- first: pieces and a join for every grouped site --------------------------------------------------------------

    def split(self, site: Site) -> None:
        """Put pieces and their join in the place of a per-group quantizer."""
        call = self.editor.call_of(site.name)
        made, whole = call.args[0], self.editor.quantizers[site.name]
        assert isinstance(made, fx.Node)
        groups = Groups.of(whole.index)
        with self.editor.after(call):
            pieces = [self._quantized(part, whole, k) for k, part in enumerate(self._parts(made, site, groups))]
            join = self.editor.call(_ATEN.cat.default, pieces, -1)
            join = self._gathered(join, groups, groups.inverse)
        call.replace_all_uses_with(join)
        # At once: what is left here would still count as a reader of other joins.
        self.editor.erase(call)
        self.editor.erase(made)
        self.joins[join] = (groups, pieces, site)

    def _quantized(self, part: fx.Node, whole: Quantizer, group: int) -> fx.Node:
        piece = activation_piece(whole, group, int(part.meta["val"].shape[-1]), part)
        piece.inplace = whole.inplace and operation(part) in ("linear", "add")
        self.new_sites.setdefault(whole.site.name, []).append(piece.site)
        return self.editor.quantize(part, piece)

    def _parts(self, made: fx.Node, site: Site, groups: Groups) -> list[fx.Node]:
        """The tensor at a node, group by group, with as much as possible folded into what makes it."""
        name = operation(made)
        if len(made.users) > 1:  # others read it whole; to make it twice would cost more than to cut it
            return self._sliced(self._gathered(made, groups, groups.order), groups)
        if name == "linear" and self._is_plain(made):
            return self._rows(made, site, groups)
        if name == "add" and self._adds_alike(made):
            left, right = (self.pieces_of(n, groups) for n in made.all_input_nodes)
            return [self.editor.call(_ATEN.add.Tensor, a, b) for a, b in zip(left, right, strict=True)]
        if name == "layer_norm" and not groups.is_sorted and self._is_plain_norm(made):
            return self._sliced(self._permuted_norm(made, site, groups), groups)
        return self._sliced(self._gathered(made, groups, groups.order), groups)

    def _rows(self, linear: fx.Node, site: Site, groups: Groups) -> list[fx.Node]:
        x, weight, *rest = linear.args
        bias = rest[0] if rest else None
        parts = []
        for k, keep in enumerate(groups.channels()):
            piece = self._weight(weight, site, k, keep, 0, linear)
            offset = None if bias is None else self._bias(bias, piece, keep, linear)
            parts.append(self.editor.call(_ATEN.linear.default, x, piece, offset))
        return parts

    def _permuted_norm(self, norm: fx.Node, site: Site, groups: Groups) -> fx.Node:
        """LayerNorm(r)[order] as the LayerNorm of r[order] with permuted weight and bias."""
        x, shape, weight, bias, *rest = norm.args
        scale = self._weight(weight, site, None, groups.order, 0, norm)
        offset = self._bias(bias, scale, groups.order, norm)
        return self.editor.call(
            norm.target, self._gathered(x, groups, groups.order), shape, scale, offset, *rest  # type: ignore[arg-type]
        )

    def pieces_of(self, node: fx.Node, groups: Groups) -> list[fx.Node]:
        """A whole tensor cut into groups: its own pieces where it is a join of the same groups, else slices of it."""
        if operation(node) == "dropout":
            inner = node.args[0]
            if isinstance(inner, fx.Node) and self._joins_alike(inner, groups):
                return [self._dropped(node, piece) for piece in self.joins[inner][1]]
        if self._joins_alike(node, groups):
            return self.joins[node][1]
        return self._sliced(self._gathered(node, groups, groups.order), groups)

    def _joins_alike(self, node: fx.Node, groups: Groups) -> bool:
        return node in self.joins and self.joins[node][0].same(groups)

    def _dropped(self, dropout: fx.Node, piece: fx.Node) -> fx.Node:
        call = self.editor.graph.call_module(str(dropout.target), (piece,))
        call.meta = dict(piece.meta)
        return call

    # -- then: linear layers that read joins --------------------------------------------------------------------------

    def cut_readers(self, join: fx.Node) -> None:
        """Let every linear layer that reads a join read its pieces: by columns, summed."""
        groups, pieces, site = self.joins[join]
        for reader in list(join.users):
            if operation(reader) == "dropout":
                with self.editor.after(reader):
                    dropped = [self._dropped(reader, piece) for piece in pieces]
                for inner in list(reader.users):
                    self._cut_reader(inner, reader, dropped, groups, site)
            else:
                self._cut_reader(reader, join, pieces, groups, site)

    def _cut_reader(self, reader: fx.Node, x: fx.Node, pieces: list[fx.Node], groups: Groups, site: Site) -> None:
        if operation(reader) not in LINEAR | MATMUL or reader.args[0] is not x:
            return
        if not self._is_plain(reader):
            raise SpecError(
                f"{site.name} is read by {reader.name}, whose weight is not a plain matrix and cannot be cut by columns; "
                f"use per-tensor ranges at {site.name}"
            )
        with self.editor.after(reader):
            total = self._columns(reader, pieces, groups, site)
        reader.replace_all_uses_with(total)
        self.editor.erase(reader)

    def _columns(self, linear: fx.Node, pieces: list[fx.Node], groups: Groups, site: Site) -> fx.Node:
        _, weight, *rest = linear.args
        bias = rest[0] if rest else None
        total = None
        for k, (piece, keep) in enumerate(zip(pieces, groups.channels(), strict=True)):
            part = self._weight(weight, site, k, keep, 1, linear)
            term = self.editor.call(_ATEN.linear.default, piece, part, bias if total is None else None)
            total = term if total is None else self.editor.call(_ATEN.add.Tensor, total, term)
        assert total is not None
        return total

    # -- nodes -------------------------------------------------------------------------------------------------------

    def _gathered(self, node: object, groups: Groups, order: Tensor) -> fx.Node:
        assert isinstance(node, fx.Node)
        if groups.is_sorted:
            return node
        key = tuple(order.tolist())
        if key not in self.orders:
            self.orders[key] = f"{_HOLDER}.order_{len(self.orders)}"
        index = self.editor.tensor(self.orders[key], order, node)
        return self.editor.call(_ATEN.index_select.default, node, -1, index)

    def _sliced(self, node: fx.Node, groups: Groups) -> list[fx.Node]:
        ends = torch.tensor(groups.sizes).cumsum(0).tolist()
        bounds = zip([0, *ends[:-1]], ends, strict=True)
        return [self.editor.call(_ATEN.slice.Tensor, node, -1, start, end) for start, end in bounds]

    def _weight(
        self, node: object, site: Site, group: int | None, keep: Tensor, axis: int, like: fx.Node
    ) -> fx.Node:
        """Part of a weight as a site of its own; `site` is the activation that asks for it."""
        assert isinstance(node, fx.Node)
        whole = self.paths[self._path(node)]
        shape = list(whole.shape)
        shape[axis] = len(keep)
        name = self._free_name(whole.name, site, group)
        target = f"{_HOLDER}.{label(name)}"
        piece = replace(whole, name=name, shape=tuple(shape), targets=(target,))
        self.new_sites.setdefault(whole.name, []).append(piece)
        self.paths[target] = piece
        return add_weight(self.editor, node, piece, keep, axis, like)

    def _free_name(self, whole: str, site: Site, group: int | None) -> str:
        """The new name of a weight; where layers share it, each of their pieces is named for its own layer."""
        leaf = whole.removesuffix(".weight").rpartition(".")[2]
        for base in (whole, f"{site.name.rpartition('.')[0]}.{leaf}.weight"):
            name = piece_name(base, group) if group is not None else f"{base.removesuffix('.weight')}.permuted.weight"
            if f"{_HOLDER}.{label(name)}" not in self.paths:
                return name
        raise SpecError(f"{whole} is read twice by {site.name}; use per-tensor ranges there")

    def _bias(self, node: object, weight: fx.Node, keep: Tensor, like: fx.Node) -> fx.Node:
        assert isinstance(node, fx.Node)
        path = self._path(weight).removesuffix("_weight") + "_bias"
        return add_parameter(self.editor, path, self.editor.module.get_parameter(self._path(node)), keep, 0, like)

    def _path(self, node: fx.Node) -> str:
        source = node.args[0] if node.op == "call_module" else node
        assert isinstance(source, fx.Node)
        return str(source.target)

    def _is_plain(self, linear: fx.Node) -> bool:
        """Whether a linear layer multiplies by a parameter and adds one, or none."""
        if operation(linear) != "linear":
            return False
        weight, *bias = linear.args[1:]
        return self._is_site(weight) and all(b is None or self._is_parameter(b) for b in bias)

    def _is_plain_norm(self, norm: fx.Node) -> bool:
        return len(norm.args) > 3 and self._is_site(norm.args[2]) and self._is_parameter(norm.args[3])

    def _is_site(self, node: object) -> bool:
        return self._is_parameter(node) and isinstance(node, fx.Node) and self._path(node) in self.paths

    def _is_parameter(self, node: object) -> bool:
        return isinstance(node, fx.Node) and self.editor.parameter(node) is not None

    def _adds_alike(self, add: fx.Node) -> bool:
        """Whether a sum adds two tensors of its own shape, so that it can be taken group by group."""
        inputs = add.all_input_nodes
        shapes = [node.meta["val"].shape for node in inputs]
        return len(inputs) == 2 and not add.kwargs and all(shape == add.meta["val"].shape for shape in shapes)


