"""Following channels through the operations that lie between what makes them and what reads them.

How channels are laid out in heads, and in a weight that makes several things, is found by sending the numbers
of the channels through these very operations: no layout is assumed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, fx

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.rewrites.editing import HOLDER, label
from octavo.graph.sites.flow import CARRIER, PRODUCT, operation


class NoChannelsError(Exception):
    """Why a site's channels cannot take factors, as the end of a sentence; never leaves this package."""


# -- numbers -------------------------------------------------------------------------------------------------


def number_rows(linear: fx.Node) -> Tensor:
    """Return the rows of a linear layer's weight, numbered, as the output of one token."""
    value = linear.meta["val"]
    return torch.arange(int(value.shape[-1])).reshape([1] * (value.dim() - 1) + [-1])


def trace(path: Sequence[fx.Node], start: Tensor) -> Tensor:
    """Send numbers, the value of the first node for one token, along a path of nodes that move them."""
    value: object = start
    for before, node in pairwise(path):
        if operation(node) == "dropout" or is_quantizer(node) or operation(node) in {"relu", "mul", "div"}:
            continue
        value = _step(node, before, value)
    assert isinstance(value, Tensor)
    return value.long()


def _step(node: fx.Node, before: fx.Node, value: object) -> object:
    if node.target is operator.getitem:
        return value[node.args[1]]  # type: ignore[index]

    def at(argument: fx.Node) -> Any:
        if argument is before:
            return value
        if isinstance(argument.meta.get("val"), Tensor):
            raise NoChannelsError("its layout depends on another tensor")
        return _size(argument)

    assert callable(node.target)
    try:
        return node.target(*fx.node.map_arg(node.args, at), **fx.node.map_arg(node.kwargs, at))
    except RuntimeError as error:
        raise NoChannelsError("its layout cannot be followed") from error


def _size(node: fx.Node) -> Any:
    """The number that a node computes from sizes when there is one text of one token."""
    if node.op != "call_function" or operation(node) == "sym_size":
        return 1
    assert callable(node.target)
    return node.target(*fx.node.map_arg(node.args, _size))


# -- ways through the graph ----------------------------------------------------------------------------------


def call_of(model: QuantizedEncoder, site: str) -> fx.Node:
    """Return the node that calls the quantizer of an activation site."""
    wanted = f"{HOLDER}.{label(site)}"
    nodes: Iterable[fx.Node] = model.graph.graph.nodes
    return next(node for node in nodes if node.target == wanted)


def parameter_of(weight: object) -> fx.Node | None:
    """Return the parameter behind a weight and its quantizer; None where the weight is computed."""
    node = weight
    while isinstance(node, fx.Node) and node.op == "call_module":
        node = node.args[0]
    return node if isinstance(node, fx.Node) and node.op == "get_attr" else None


def readers_of(node: fx.Node) -> Iterator[fx.Node]:
    """Yield what reads a parameter, past its quantizer."""
    for user in node.users:
        if user.op == "call_module":
            yield from readers_of(user)
        else:
            yield user


def paths_to_readers(node: fx.Node) -> Iterator[list[fx.Node]]:
    """Yield the nodes from `node` to each operation that reads it, carriers and quantizers passed."""
    for user in node.users:
        if operation(user) in CARRIER or is_quantizer(user):
            for path in paths_to_readers(user):
                yield [node, *path]
        else:
            yield [node, user]


def path_back(node: fx.Node) -> tuple[list[fx.Node], bool]:
    """Return the nodes from a linear layer to `node`, and whether nothing but carriers lies between."""
    path, affine = [node], True
    while operation(path[0]) != "linear":
        node = path[0]
        name = operation(node)
        if name in CARRIER or name == "getitem" or is_quantizer(node) or is_scaling(node):
            before = node.all_input_nodes[0]
        elif name == "relu":
            before, affine = node.all_input_nodes[0], False
        elif name in PRODUCT and name.startswith("mul") and len(node.all_input_nodes) == 2:
            before, affine = _ungated(node), False
        else:
            raise NoChannelsError("no linear layer makes it")
        path.insert(0, before)
    return path, affine


def _ungated(product: fx.Node) -> fx.Node:
    """The operand of a gate's product that a linear layer makes without a function between."""
    for operand in reversed(product.all_input_nodes):
        node = operand
        while operation(node) in CARRIER or operation(node) == "getitem":
            node = node.all_input_nodes[0]
        if operation(node) == "linear":
            return operand
    raise NoChannelsError("no linear layer makes it")


def behind_carriers(node: fx.Node) -> fx.Node:
    """Return what makes a node's values, behind all that only carries them."""
    while operation(node) in CARRIER or is_quantizer(node):
        node = node.all_input_nodes[0]
    return node


def is_scaling(node: fx.Node) -> bool:
    """Say whether a node multiplies by a plain number."""
    return operation(node) in PRODUCT and len(node.all_input_nodes) == 1


def is_quantizer(node: fx.Node) -> bool:
    """Say whether a node calls a quantizer."""
    return node.op == "call_module" and str(node.target).startswith(f"{HOLDER}.")


def site_name(call: fx.Node) -> str:
    """Return the site of the quantizer that a node calls."""
    module = call.graph.owning_module
    assert module is not None
    quantizer = module.get_submodule(str(call.target))
    assert isinstance(quantizer, Quantizer)
    return quantizer.site.name
