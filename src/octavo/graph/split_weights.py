"""Parts of weights and biases for a split graph, each weight a site of its own."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, fx

from octavo.errors import SpecError
from octavo.graph.editing import Editor, label
from octavo.graph.operations import operation
from octavo.graph.pieces import add_parameter, add_weight, piece_name
from octavo.graph.sites import Site

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
        self, node: object, reader: Site, group: int | None, keep: Tensor, axis: int, like: fx.Node
    ) -> fx.Node:
        """Add the entries `keep` along `axis` of a weight.

        Arguments:
            node: the weight, or the call of its quantizer.
            reader: the activation site for whose sake it is cut.
            group: which group of that site; None permutes the weight whole.
            like: any activation of the graph.
        """
        assert isinstance(node, fx.Node)
        whole = self._sites[_path(node)]
        shape = list(whole.shape)
        shape[axis] = len(keep)
        name = self._free_name(whole.name, reader, group)
        target = f"{HOLDER}.{label(name)}"
        piece = replace(whole, name=name, shape=tuple(shape), targets=(target,))
        self.new_sites.setdefault(whole.name, []).append(piece)
        self._sites[target] = piece
        return add_weight(self.editor, node, piece, keep, axis, like)

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

    def _free_name(self, whole: str, reader: Site, group: int | None) -> str:
        """The new name of a weight; where layers share it, the piece of each is named for its own layer."""
        leaf = whole.removesuffix(".weight").rpartition(".")[2]
        for base in (whole, f"{reader.name.rpartition('.')[0]}.{leaf}.weight"):
            permuted = f"{base.removesuffix('.weight')}.permuted.weight"
            name = permuted if group is None else piece_name(base, group)
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
