"""Channels: what makes those of an activation and what reads them, so that both can take a factor.

A factor that divides the channels of an activation has to go somewhere. In front of the site it goes into the
norm or the rows of the linear layer that makes it (through ReLU, through the product with a gate, through the
product of attention probabilities and values), or becomes a multiplication. Behind it, it goes into the
columns of the linear layers that read it. Query and key divide and multiply each other.

How channels are laid out in heads, and in a weight that makes several things, is found by sending the numbers
of the channels through the very operations that lie between: no layout is assumed.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, fx

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.graph.rewrites.editing import HOLDER, label
from octavo.graph.sites.flow import CARRIER, MATMUL, PRODUCT, SOFTMAX, SPLIT, operation

Part = tuple[int, ...]
"""What of a weight takes factors: these rows, or all columns."""

COLUMNS: Part = ()


class NoChannelsError(Exception):
    """Why a site's channels cannot take factors, as the end of a sentence; never leaves this package."""


@dataclass(frozen=True, eq=False)
class Reader:
    """A linear layer that reads the channels.

    Attributes:
        columns: (in_features,) the channel that each column of its weight meets.
        elements: (in_features,) which element of a token, in the order of the site's axes, that is; several
            elements belong to one channel where heads share keys and values.
    """

    node: fx.Node
    weight: str
    columns: Tensor
    elements: Tensor


@dataclass(frozen=True, eq=False)
class Rows:
    """A linear layer that makes channels: row `rows[i]` of its weight makes channel `channels[i]`.

    `inverse`: it is multiplied where others are divided (keys against queries). `affine`: it takes the offset
    as well; not behind ReLU or a gate, which only let factors pass, and of queries and keys only the keys.
    """

    node: fx.Node
    weight: str
    rows: Tensor
    channels: Tensor
    inverse: bool = False
    affine: bool = True

    @property
    def part(self) -> Part:
        """The rows that it takes, which tell it from others of a weight that makes several things."""
        return tuple(sorted(set(self.rows.tolist())))


@dataclass(frozen=True, eq=False, kw_only=True)
class Channels:
    """The channels of one site, or of two that a product joins, with what makes and what reads them.

    Arguments:
        width: how many channels there are.
        sites: the sites that hold them; for each the channel of every element of a token, (elements,).
        makers: linear layers whose rows take the factors; none where a norm or a multiplication takes them.
        readers: linear layers whose columns take them back.
        read: the site that the readers read; None where none of the sites is read by linear layers.
        norm: the norm that makes the site, of which there is to be a second one.
        shifts: an offset can be subtracted without another operation.
        keys: the sites of queries and keys that are multiplied where the others are divided.
    """

    width: int
    sites: dict[str, Tensor]
    makers: tuple[Rows, ...] = ()
    readers: tuple[Reader, ...] = ()
    read: str | None = None
    norm: fx.Node | None = None
    shifts: bool = False
    keys: tuple[str, ...] = ()

    @property
    def is_pair(self) -> bool:
        """Whether these are queries and keys, which nothing reads but their product."""
        return any(maker.inverse for maker in self.makers)

    @property
    def is_free(self) -> bool:
        """Whether no operation is added to the graph."""
        return bool(self.makers) or self.norm is not None

    def parameters(self) -> Iterator[tuple[str, Part, fx.Node, Tensor]]:
        """Yield every weight that takes factors: (path, which part of it, its layer, its channels)."""
        for maker in self.makers:
            yield maker.weight, maker.part, maker.node, maker.channels
        for reader in self.readers:
            yield reader.weight, COLUMNS, reader.node, reader.columns


def channels_of(model: QuantizedEncoder, site: str) -> Channels:
    """Return the channels of a site, or say why they cannot take factors (`NoChannelsError`)."""
    call = call_of(model, site)
    product = _product_after(call)
    if product is not None:
        is_value = _leads_to_softmax(product.args[0])
        return _of_values(model, product) if is_value else _of_scores(model, product)
    source = call.args[0]
    assert isinstance(source, fx.Node)
    behind = _behind_carriers(source)
    if operation(behind) in MATMUL and len(behind.all_input_nodes) == 2 and _leads_to_softmax(behind.args[0]):
        return _of_values(model, behind)
    return _of_tensor(model, site, call, source)


def call_of(model: QuantizedEncoder, site: str) -> fx.Node:
    """Return the node that calls the quantizer of an activation site."""
    wanted = f"{HOLDER}.{label(site)}"
    nodes: Iterable[fx.Node] = model.graph.graph.nodes
    return next(node for node in nodes if node.target == wanted)


def gamma_of(model: QuantizedEncoder, channels: Channels) -> Tensor | None:
    """Return the weight of the norm that makes channels, (width,); None where none does."""
    if channels.norm is None:
        return None
    written = written_norm(channels.norm)
    weight = channels.norm.args[2] if written is None else written[0].args[written[1]]
    assert isinstance(weight, fx.Node)
    return model.graph.get_parameter(str(weight.target)).detach().float().cpu()


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


# -- one tensor ----------------------------------------------------------------------------------------------


def _of_tensor(model: QuantizedEncoder, site: str, call: fx.Node, source: fx.Node) -> Channels:
    quantizer = model.quantizers[site]
    width = quantizer.site.width
    if width is None or quantizer.site.channel_axis != -1:
        raise NoChannelsError("its last axis does not hold channels")
    index = torch.arange(width).reshape([1] * (len(quantizer.site.shape) - 1) + [width])
    readers = _linear_readers(call, index)
    plain = Channels(width=width, sites={site: index.flatten()}, readers=readers, read=site)
    norm = _norm_behind(source)
    if norm is not None:
        return replace(plain, norm=norm, shifts=operation(norm) != "mul")  # an RMS norm has no bias
    try:
        maker, made = _rows_to(source)
    except NoChannelsError:
        return plain
    if len(made.unique()) != width:
        return plain
    return replace(plain, makers=(maker,), shifts=maker.affine)


def _norm_behind(source: fx.Node) -> fx.Node | None:
    """The norm that makes a tensor, dropout aside: a layer norm, or a product with a vector written out."""
    node, alone = source, len(source.users) == 1
    while operation(node) == "dropout":
        node = node.all_input_nodes[0]
        alone = alone and len(node.users) == 1
    if is_plain_norm(node):
        return node
    # where something reads the first, a second one costs more than a multiplication
    return node if alone and written_norm(node) is not None else None


def is_plain_norm(node: fx.Node) -> bool:
    """Say whether a node is a layer norm whose weight is a parameter, and whose bias is one or is missing."""
    if operation(node) != "layer_norm" or len(node.args) < 3:
        return False
    weight, bias = node.args[2], node.args[3] if len(node.args) > 3 else None
    return _is_attribute(weight) and (bias is None or _is_attribute(bias))


def written_norm(node: fx.Node) -> tuple[fx.Node, int] | None:
    """The product with a vector that a norm written out ends in, and the place of the vector in it.

    The node is that product (RMS norm), or the addition of a vector to it (MobileBERT's scale and shift).
    """
    if operation(node) == "add" and len(node.args) == 2 and _is_vector(node.args[1]):
        product = node.args[0]
        if not isinstance(product, fx.Node) or len(product.users) != 1:
            return None
        return written_norm(product) if operation(product) == "mul" else None
    if operation(node) != "mul" or len(node.args) != 2:
        return None
    place = next((place for place in (0, 1) if _is_vector(node.args[place])), None)
    return None if place is None else (node, place)


def _is_attribute(node: object) -> bool:
    return isinstance(node, fx.Node) and node.op == "get_attr"


def _is_vector(node: object) -> bool:
    return isinstance(node, fx.Node) and node.op == "get_attr" and node.meta["val"].dim() == 1


def _linear_readers(start: fx.Node, index: Tensor) -> tuple[Reader, ...]:
    """Every linear layer that reads a node, with the channel of each column; another reader is refused."""
    found = []
    for path in _paths_to_readers(start):
        node = path[-1]
        if operation(node) != "linear":
            raise NoChannelsError("not only linear layers read it")
        weight = parameter_of(node.args[1])
        if weight is None:
            raise NoChannelsError("a linear layer whose weight is computed reads it")
        numbers = torch.arange(index.numel()).reshape(index.shape)
        elements = trace(path[:-1], numbers).flatten()
        if len(elements) != weight.meta["val"].shape[-1]:
            raise NoChannelsError("its channels are not the columns of the weight that reads it")
        found.append(Reader(node, str(weight.target), index.flatten()[elements], elements))
    if not found:
        raise NoChannelsError("no linear layer reads it")
    return tuple(found)


def _paths_to_readers(node: fx.Node) -> Iterator[list[fx.Node]]:
    for user in node.users:
        if operation(user) in CARRIER or _is_quantizer(user):
            for path in _paths_to_readers(user):
                yield [node, *path]
        else:
            yield [node, user]


# -- products ------------------------------------------------------------------------------------------------


def _product_after(call: fx.Node) -> fx.Node | None:
    """The matrix product of two activations that alone reads a site."""
    paths = list(_paths_to_readers(call))
    if len(paths) != 1 or operation(paths[0][-1]) not in MATMUL:
        return None
    product = paths[0][-1]
    tensors = [node for node in product.args if isinstance(node, fx.Node)]
    return product if len(tensors) == 2 else None


def _leads_to_softmax(node: object) -> bool:
    assert isinstance(node, fx.Node)
    return operation(_behind_carriers(node)) in SOFTMAX


def _of_values(model: QuantizedEncoder, product: fx.Node) -> Channels:
    """Values and the context made of them: rows of probabilities sum to one, so an offset passes as well."""
    operand = product.args[1]
    assert isinstance(operand, fx.Node)
    maker, made = _rows_to(operand)
    if not maker.affine:
        raise NoChannelsError("a function lies between it and the linear layer that makes it")
    rows, channels = made.flatten().unique(return_inverse=True)
    readers = _linear_readers(product, channels.reshape(made.shape))
    values = {name: _elements(model, name, path, rows, maker) for name, path in _sites_on(operand)}
    context = _site_after(product)
    sites = values if context is None else values | {context: _by_token(model, context, channels)}
    return Channels(
        width=len(rows),
        sites=_known(sites),
        makers=(Rows(maker.node, maker.weight, rows, torch.arange(len(rows))),),
        readers=readers,
        read=context,
        shifts=True,
    )


def _of_scores(model: QuantizedEncoder, product: fx.Node) -> Channels:
    """Queries and keys: what divides the one multiplies the other; softmax does not see an offset of keys."""
    left, right = product.args[:2]
    assert isinstance(left, fx.Node) and isinstance(right, fx.Node)
    query, query_rows = _rows_to(left)
    key, key_rows = _rows_to(right)
    if not query.affine or not key.affine:
        raise NoChannelsError("a function lies between it and the linear layer that makes it")
    if query_rows.shape != key_rows.transpose(-1, -2).shape:
        raise NoChannelsError("queries and keys do not meet channel by channel")
    rows, channels = key_rows.transpose(-1, -2).flatten().unique(return_inverse=True)
    keys = {name: _elements(model, name, path, rows, key) for name, path in _sites_on(right)}
    meets = torch.full((int(query_rows.max()) + 1,), -1)
    meets[query_rows.flatten()] = channels  # the channel that each row of the query's weight makes
    queries = {
        name: meets[_by_token(model, name, trace(path, _numbers(query.node)))]
        for name, path in _sites_on(left)
    }
    return Channels(
        width=len(rows),
        sites=_known(queries | keys),
        makers=(
            Rows(query.node, query.weight, query_rows.flatten(), channels, affine=False),
            Rows(key.node, key.weight, rows, torch.arange(len(rows)), inverse=True),
        ),
        shifts=_reaches_softmax(product),
        keys=tuple(keys),
    )


def _reaches_softmax(node: fx.Node) -> bool:
    """Whether softmax reads a product, with nothing between but what treats all keys of a query alike."""
    while len(node.users) == 1:
        node = next(iter(node.users))
        if operation(node) in SOFTMAX:
            return node.args[1] in (-1, 3)
        alike = operation(node) in CARRIER | {"add", "masked_fill", "where"} or _is_quantizer(node)
        if not (alike or _is_scaling(node)):
            return False
    return False


def _known(sites: dict[str, Tensor]) -> dict[str, Tensor]:
    if not sites or any(int(index.min()) < 0 for index in sites.values()):
        raise NoChannelsError("some of its channels meet nothing")
    return sites


def _sites_on(operand: fx.Node) -> Iterator[tuple[str, list[fx.Node]]]:
    """The sites on the way from a linear layer to a product, each with the nodes up to it."""
    path, _ = _path_back(operand)
    for place, node in enumerate(path):
        if _is_quantizer(node):
            yield _site_name(node), path[: place + 1]


def _site_after(product: fx.Node) -> str | None:
    """The site of what a product makes, directly behind it."""
    node = product
    while len(node.users) == 1:
        node = next(iter(node.users))
        if _is_quantizer(node):
            return _site_name(node)
        if operation(node) != "dropout":
            break
    return None


def _elements(
    model: QuantizedEncoder, site: str, path: Sequence[fx.Node], rows: Tensor, maker: Rows
) -> Tensor:
    """The channel of every element of a site before a product: the place in `rows` of what makes it."""
    made = _by_token(model, site, trace(path, _numbers(maker.node)))
    places = torch.full((int(max(rows.max(), made.max())) + 1,), -1)
    places[rows] = torch.arange(len(rows))
    return places[made]


def _by_token(model: QuantizedEncoder, site: str, index: Tensor) -> Tensor:
    """Numbers of one token's elements at a site, in the order of its axes."""
    sizes = [size for size in model.quantizers[site].site.shape if isinstance(size, str)]
    if sizes != ["batch", "length"]:
        raise NoChannelsError("heads and texts share an axis")
    return index.flatten()


# -- tracing -------------------------------------------------------------------------------------------------


def _rows_to(node: fx.Node) -> tuple[Rows, Tensor]:
    """The linear layer that makes a node, which alone reads it, and the row that makes each element."""
    path, affine = _path_back(node)
    linear = path[0]
    if operation(linear) != "linear":
        raise NoChannelsError("no linear layer makes it")
    weight = parameter_of(linear.args[1])
    if weight is None or (
        len(linear.args) > 2 and linear.args[2] is not None and not _is_attribute(linear.args[2])
    ):
        raise NoChannelsError("the weight that makes it is computed")
    for step in path:
        if len(step.users) != 1 and operation(step) not in SPLIT:
            raise NoChannelsError("something else reads what makes it")
    index = trace(path, _numbers(linear))
    return Rows(
        linear, str(weight.target), index.flatten(), torch.arange(index.numel()), affine=affine
    ), index


def _path_back(node: fx.Node) -> tuple[list[fx.Node], bool]:
    """The nodes from a linear layer to `node`, and whether nothing but carriers lies between."""
    path, affine = [node], True
    while operation(path[0]) != "linear":
        node = path[0]
        name = operation(node)
        if name in CARRIER or name == "getitem" or _is_quantizer(node) or _is_scaling(node):
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


def _behind_carriers(node: fx.Node) -> fx.Node:
    while operation(node) in CARRIER or _is_quantizer(node):
        node = node.all_input_nodes[0]
    return node


def _numbers(linear: fx.Node) -> Tensor:
    """The rows of a linear layer's weight, numbered, as the output of one token."""
    value = linear.meta["val"]
    return torch.arange(int(value.shape[-1])).reshape([1] * (value.dim() - 1) + [-1])


def trace(path: Sequence[fx.Node], start: Tensor) -> Tensor:
    """Send numbers, the value of the first node for one token, along a path of nodes that move them."""
    value: object = start
    for before, node in pairwise(path):
        if operation(node) == "dropout" or _is_quantizer(node) or operation(node) in {"relu", "mul", "div"}:
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


def _is_scaling(node: fx.Node) -> bool:
    """Whether a node multiplies by a plain number."""
    return operation(node) in PRODUCT and len(node.all_input_nodes) == 1


def _is_quantizer(node: fx.Node) -> bool:
    return node.op == "call_module" and str(node.target).startswith(f"{HOLDER}.")


def _site_name(call: fx.Node) -> str:
    module = call.graph.owning_module
    assert module is not None
    quantizer = module.get_submodule(str(call.target))
    assert isinstance(quantizer, Quantizer)
    return quantizer.site.name
