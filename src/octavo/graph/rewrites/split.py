"""The per-tensor form of per-group activations: the paper's figure on PEG with per-tensor operations.

Section 4 of the paper: the output of the first LayerNorm is permuted and cut into K pieces, the first
linear layer of the FFN is decomposed by columns and its K results summed, the second by rows and its K
results concatenated, and the inverse permutation comes before the next LayerNorm. Each piece has a
quantizer of one scale.

    r - gather - LayerNorm' -+- x0 - W1[:, 0] -+              +- W2[0, :] - h0 - (+ x0) - y0 -+
                             +- x1 - W1[:, 1] -+- sum - GELU -+- W2[1, :] - h1 - (+ x1) - y1 -+- cat - gather

Folded into parameters: LayerNorm' has permuted weight and bias (its statistics do not change under a
permutation), W1 permuted columns, W2 permuted rows and bias. Two gathers a layer remain, and none
without a permutation: one before the first LayerNorm, because its input holds the layer's input, which
attention reads too; one before the second. The hidden layer needs none: W1 makes it in any order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise

import torch
from torch import Tensor, fx

from octavo.errors import CalibrationError, SpecError
from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.quantizers.quantizer import Quantizer, State
from octavo.graph.rewrites.editing import HOLDER as QUANTIZERS
from octavo.graph.rewrites.editing import Editor, label
from octavo.graph.rewrites.pieces import HOLDER, Groups, WeightCutter, activation_piece
from octavo.graph.rewrites.reorder import linear_sources, repeated
from octavo.graph.sites.flow import LINEAR, MATMUL, operation
from octavo.graph.sites.site import Site
from octavo.spec import SplitGroups

_ATEN = torch.ops.aten


def split_groups(
    model: QuantizedEncoder, narrow: int | None = None, in_place: bool = False
) -> QuantizedEncoder:
    """Return a model of the same function whose activation quantizers are per tensor; `model` stays.

    Each site with groups becomes sites `<name>.groups.0`, `.1` and so on; a linear layer that reads it is
    cut by columns, one that makes it by rows, and their weights become `<name>.groups.0.weight` and so on,
    on the scales they had. Outputs equal those of `model` up to the order of float additions.

    Arguments:
        narrow, in_place: as in `SplitGroups`: what makes a split cheaper on CPUs.
    """
    check_split(model)
    return apply_split(model, SplitGroups(narrow=narrow, in_place=in_place))


def apply_split(
    model: QuantizedEncoder, done: SplitGroups, saved: Collection[str] | None = None
) -> QuantizedEncoder:
    """Rewrite without the checks: also a model whose ranges are still to be loaded.

    `saved` are the names of the tensors of a saved model, whose split is made again.
    """
    splitter = _Splitter(model, done, saved)
    for quantizer in grouped(model).values():
        splitter.split(quantizer.site)
    for join in splitter.joins:
        splitter.cut_readers(join)
    indices = {name: quantizer.index for name, quantizer in grouped(model).items()}
    return model.rewritten(done, **splitter.finish(), group_index=indices)


class _Splitter:
    """The rewrite in progress.

    First every grouped quantizer becomes pieces and a join, which stands for the whole tensor in its original
    order; then the readers of joins that can read pieces do, and joins that nobody reads disappear.
    """

    def __init__(self, model: QuantizedEncoder, done: SplitGroups, saved: Collection[str] | None) -> None:
        self.model = model
        self.narrow, self.in_place = done.narrow or 0, done.in_place
        self.saved = saved
        self.editor = Editor(model.graph, model.quantizers)
        self.weights = WeightCutter(self.editor, model.weight_sites)
        self.joins: dict[fx.Node, tuple[Groups, list[fx.Node], Site]] = {}
        self.pieces: dict[str, list[Site]] = {}  # the sites that replace an activation site
        self.orders: dict[tuple[int, ...], str] = {}

    def finish(self) -> dict[str, object]:
        """The changed parts of the model."""
        graph = self.editor.finish()
        used = {str(node.target) for node in graph.graph.nodes}
        kept = {n: q for n, q in self.editor.quantizers.items() if f"{QUANTIZERS}.{label(n)}" in used}
        activations, weights = (tuple(self._replaced(sites, used)) for sites in self.model.sites)
        names = [site.name for site in (*activations, *weights)]
        return {
            "graph": graph,
            "quantizers": {name: kept[name] for name in names if name in kept},
            "sites": (activations, weights),
        }

    def _replaced(self, sites: Sequence[Site], used: set[str]) -> list[Site]:
        """The sites with pieces, and pieces of pieces, in the place of what was cut."""
        made = self.pieces | self.weights.new_sites
        result = []
        for site in sites:
            pieces = made.get(site.name, [])
            if not pieces or (site.kind == "weight" and used.intersection(site.targets)):
                result.append(site)
            result += self._replaced(pieces, used)
        return result

    # -- first: pieces and a join for every grouped site ---------------------------------------------------

    def split(self, site: Site) -> None:
        """Put pieces and their join in the place of a per-group quantizer."""
        call = self.editor.call_of(site.name)
        made, whole = call.args[0], self.editor.quantizers[site.name]
        assert isinstance(made, fx.Node)
        groups = Groups.of(whole.index)
        if self.in_place and all(self._reads(reader, call) for reader in call.users):
            self._split_in_place(call, made, whole, groups)
            return
        with self.editor.after(call):
            parts = self._parts(made, site, groups)
            pieces = [self._quantized(part, whole, group) for group, part in enumerate(parts)]
            join = self.editor.call(_ATEN.cat.default, pieces, -1)
            join = self._gathered(join, groups, groups.inverse)
        call.replace_all_uses_with(join)
        # At once: what is left here would still count as a reader of other joins.
        self.editor.erase(call)
        self.editor.erase(made)
        self.joins[join] = (groups, pieces, site)

    def _reads(self, reader: fx.Node, x: fx.Node) -> bool:
        return self.weights.is_plain_linear(reader) and reader.args[0] is x

    def _split_in_place(self, call: fx.Node, made: fx.Node, whole: Quantizer, groups: Groups) -> None:
        """Take out all but the largest group; linear layers read that from the whole tensor.

        The columns of the other channels are 0 there, so that it does not matter how its grid clips them.
        """
        with self.editor.after(call):
            parts = [
                made if group == groups.largest else self._picked(made, keep)
                for group, keep in enumerate(groups.channels())
            ]
            pieces = [self._quantized(part, whole, group) for group, part in enumerate(parts)]
        self.editor.quantizers[self.pieces[whole.site.name][groups.largest].name].inplace = False
        for reader in list(call.users):
            with self.editor.after(reader):
                total = self._columns(reader, pieces, groups, whole.site, in_place=True)
            reader.replace_all_uses_with(total)
            self.editor.erase(reader)
        self.editor.erase(call)

    def _quantized(self, part: fx.Node, whole: Quantizer, group: int) -> fx.Node:
        piece = activation_piece(whole, group, int(part.meta["val"].shape[-1]), part)
        piece.inplace = whole.inplace and operation(part) in ("linear", "add")
        self.pieces.setdefault(whole.site.name, []).append(piece.site)
        return self.editor.quantize(part, piece)

    def _parts(self, made: fx.Node, site: Site, groups: Groups) -> list[fx.Node]:
        """The tensor at a node, group by group, with as much as possible folded into what makes it."""
        if len(made.users) > 1:  # others read it whole; to make it twice would cost more than to cut it
            return self._sliced(self._gathered(made, groups, groups.order), groups)
        if self.weights.is_plain_linear(made):
            return self._rows(made, site, groups)
        if operation(made) == "add" and _adds_alike(made):
            left, right = (self.pieces_of(n, groups) for n in made.all_input_nodes)
            return [self.editor.call(_ATEN.add.Tensor, a, b) for a, b in zip(left, right, strict=True)]
        if not groups.is_sorted and self.weights.is_plain_norm(made):
            return self._sliced(self._permuted_norm(made, site, groups), groups)
        if not groups.is_sorted and self._reorder_rows(made, site, groups):
            return self._sliced(made, groups)
        return self._sliced(self._gathered(made, groups, groups.order), groups)

    def _reorder_rows(self, made: fx.Node, site: Site, groups: Groups) -> bool:
        """Let the linear layers behind an elementwise function make their rows in the order of the groups."""
        sources = linear_sources(self.weights, made, len(groups.order))
        if not sources or not all(self._was_permuted(linear, site) for linear in sources):
            return False
        for linear in sources:
            rows = repeated(groups.order, int(linear.meta["val"].shape[-1]))
            with self.editor.graph.inserting_before(linear):
                weight = self.weights.weight(linear.args[1], site, (), rows, 0, linear)
                linear.update_arg(1, weight)
                if len(linear.args) > 2 and linear.args[2] is not None:
                    linear.update_arg(2, self.weights.bias(linear.args[2], weight, rows, linear))
        return True

    def _was_permuted(self, linear: fx.Node, site: Site) -> bool:
        """Whether a saved split has the weight in order; those of former versions have a gather instead."""
        stem = self.weights.permuted_stem(linear.args[1], site)
        return self.saved is None or any(name.startswith(stem) for name in self.saved)

    def _rows(self, linear: fx.Node, site: Site, groups: Groups) -> list[fx.Node]:
        x, weight, *rest = linear.args
        bias = rest[0] if rest else None
        channels = groups.channels()
        parts: dict[int, fx.Node] = {}
        for bundle in groups.bundles(self.narrow):
            keep = torch.cat([channels[group] for group in bundle])
            piece = self.weights.weight(weight, site, bundle, keep, 0, linear)
            offset = None if bias is None else self.weights.bias(bias, piece, keep, linear)
            made = self.editor.call(_ATEN.linear.default, x, piece, offset)
            sizes = [groups.sizes[group] for group in bundle]
            parts |= dict(zip(bundle, self._cut(made, sizes) if bundle[1:] else [made], strict=True))
        return [part for _, part in sorted(parts.items())]

    def _permuted_norm(self, norm: fx.Node, site: Site, groups: Groups) -> fx.Node:
        """LayerNorm(r)[order] as the LayerNorm of r[order] with permuted weight and bias."""
        x, shape, weight, bias, *rest = norm.args
        scale = self.weights.weight(weight, site, (), groups.order, 0, norm)
        offset = self.weights.bias(bias, scale, groups.order, norm)
        gathered = self._gathered(x, groups, groups.order)
        return self.editor.call(_ATEN.layer_norm.default, gathered, shape, scale, offset, *rest)

    def pieces_of(self, node: fx.Node, groups: Groups) -> list[fx.Node]:
        """A whole tensor cut into groups: its pieces where it is a join of the same groups, else slices."""
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

    # -- then: linear layers that read joins ---------------------------------------------------------------

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

    def _cut_reader(
        self, reader: fx.Node, x: fx.Node, pieces: list[fx.Node], groups: Groups, site: Site
    ) -> None:
        if operation(reader) not in LINEAR | MATMUL or reader.args[0] is not x:
            return
        if not self.weights.is_plain_linear(reader):
            raise SpecError(
                f"{site.name} is read by {reader.name}, whose weight is not a plain matrix and cannot be cut "
                f"by columns; use per-tensor ranges at {site.name}"
            )
        with self.editor.after(reader):
            total = self._columns(reader, pieces, groups, site)
        reader.replace_all_uses_with(total)
        self.editor.erase(reader)

    def _columns(
        self, linear: fx.Node, pieces: list[fx.Node], groups: Groups, site: Site, in_place: bool = False
    ) -> fx.Node:
        _, weight, *rest = linear.args
        bias = rest[0] if rest else None
        channels, total = groups.channels(), None
        for bundle in groups.bundles(self.narrow):
            keep, zero = torch.cat([channels[group] for group in bundle]), None
            if in_place and bundle == (groups.largest,):
                zero = torch.cat([other for group, other in enumerate(channels) if group not in bundle])
                keep = torch.arange(len(groups.order))
            part = self.weights.weight(weight, site, bundle, keep, 1, linear, zero)
            x = [pieces[group] for group in bundle]
            read = self.editor.call(_ATEN.cat.default, x, -1) if bundle[1:] else x[0]
            term = self.editor.call(_ATEN.linear.default, read, part, bias if total is None else None)
            total = term if total is None else self.editor.call(_ATEN.add.Tensor, total, term)
        assert total is not None
        return total

    # -- nodes ---------------------------------------------------------------------------------------------

    def _gathered(self, node: object, groups: Groups, order: Tensor) -> fx.Node:
        """A tensor with its channels in another order; itself where groups are runs of channels already."""
        assert isinstance(node, fx.Node)
        return node if groups.is_sorted else self._picked(node, order)

    def _picked(self, node: fx.Node, order: Tensor) -> fx.Node:
        """The channels `order` of a tensor."""
        path = self.orders.setdefault(tuple(order.tolist()), f"{HOLDER}.order_{len(self.orders)}")
        return self.editor.call(_ATEN.index_select.default, node, -1, self.editor.tensor(path, order, node))

    def _sliced(self, node: fx.Node, groups: Groups) -> list[fx.Node]:
        return self._cut(node, groups.sizes)

    def _cut(self, node: fx.Node, sizes: Sequence[int]) -> list[fx.Node]:
        ends = torch.tensor(sizes).cumsum(0).tolist()
        bounds = zip([0, *ends[:-1]], ends, strict=True)
        return [self.editor.call(_ATEN.slice.Tensor, node, -1, start, end) for start, end in bounds]


def _adds_alike(add: fx.Node) -> bool:
    """Whether a sum adds two tensors of its own shape, so that it can be taken group by group."""
    inputs = add.all_input_nodes
    shapes = [node.meta["val"].shape for node in inputs]
    return len(inputs) == 2 and not add.kwargs and all(shape == add.meta["val"].shape for shape in shapes)


def grouped(model: QuantizedEncoder) -> dict[str, Quantizer]:
    """The activation quantizers with groups, in the order of computation."""
    return {
        site.name: model.quantizers[site.name]
        for site in model.activation_sites
        if site.name in model.quantizers and model.quantizers[site.name].spec.granularity.has_groups
    }


def check_split(model: QuantizedEncoder) -> None:
    """Refuse what cannot be split, naming the site and the remedy."""
    found = grouped(model)
    if any(isinstance(done, SplitGroups) for done in model.passes):
        raise SpecError(f"{model.name} is split already")
    if not found:
        raise SpecError(
            f"recipe {model.recipe.name!r} has no per-group activations, so there is nothing to split; "
            "use one that has, such as w8a8-peg6"
        )
    for name, quantizer in model.quantizers.items():
        _check_state(name, quantizer)
        _check_granularity(name, quantizer)
    layers: dict[str, dict[str, Quantizer]] = {}
    for name, quantizer in found.items():
        layers.setdefault(name.rpartition(".")[0], {})[name] = quantizer
        if quantizer.axis not in (-1, len(quantizer.site.shape) - 1):
            raise SpecError(
                f"{name} has its channels on axis {quantizer.axis}, as convolutions do, and only the last "
                "axis can be split; use per-tensor ranges there"
            )
    for prefix, quantizers in layers.items():
        _check_shared(quantizers)
        _check_post_norm(model, prefix, quantizers)


def _check_state(name: str, quantizer: Quantizer) -> None:
    if quantizer.state in (State.OBSERVE, State.LEARN):
        raise CalibrationError(
            f"{name} is still in state {quantizer.state.value}; calibrate and fix the model, then split it"
        )


def _check_granularity(name: str, quantizer: Quantizer) -> None:
    granularity = quantizer.spec.granularity
    if quantizer.site.kind == "activation" and not (granularity.has_one_scale or granularity.has_groups):
        raise SpecError(
            f"{name} is {type(granularity).__name__}, which has no per-tensor form; "
            "use PerGroup or PerTensor there"
        )


def _check_shared(quantizers: dict[str, Quantizer]) -> None:
    """The permuted sites of a layer must have one permutation, or each would need gathers of its own."""
    permuted = {name: q for name, q in quantizers.items() if q.spec.granularity.permutes}
    for (first, one), (second, other) in pairwise(permuted.items()):
        if one.site.width == other.site.width and not torch.equal(one.index, other.index):
            raise SpecError(
                f"{first} and {second} have different permutations or groups, and a split needs one for "
                "the layer; use the same number of groups with shared: true"
            )


def _check_post_norm(model: QuantizedEncoder, prefix: str, quantizers: dict[str, Quantizer]) -> None:
    """The FFN must add back its own input, as post-norm layers do, so that the sum has the input's pieces."""
    sites = {site.name: site for site in model.activation_sites}
    inputs, residual = sites.get(f"{prefix}.ffn_input"), sites.get(f"{prefix}.ffn_residual")
    if inputs is None or residual is None or not {inputs.name, residual.name} & quantizers.keys():
        return
    if not _adds_back(model.graph, residual, inputs):
        raise SpecError(
            f"{residual.name} does not add {inputs.name} back: this is a pre-norm layer, and only post-norm "
            f"layers can be split; use per-tensor ranges at {prefix}.ffn_*, in 16 bits where 8 are too few "
            "(w8a8-mp)"
        )


def _adds_back(graph: fx.GraphModule, residual: Site, inputs: Site) -> bool:
    nodes = {node.name: node for node in graph.graph.nodes}
    return any(_origin(node).name == inputs.targets[0] for node in nodes[residual.targets[0]].all_input_nodes)


def _origin(node: fx.Node) -> fx.Node:
    """The operation behind quantizers and dropout."""
    while node.op == "call_module" and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node
