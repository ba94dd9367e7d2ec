"""Channels: what makes those of an activation and what reads them, so that both can take a factor.

A factor that divides the channels of an activation has to go somewhere. In front of the site it goes into the
norm or the rows of the linear layer that makes it (through ReLU, through the product with a gate, through the
product of attention probabilities and values), or becomes a multiplication. Behind it, it goes into the
columns of the linear layers that read it. Query and key divide and multiply each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, fx

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.rewrites.tracing import (
    NoChannelsError,
    behind_carriers,
    call_of,
    is_quantizer,
    is_scaling,
    number_rows,
    parameter_of,
    path_back,
    paths_to_readers,
    site_name,
    trace,
)
from octavo.graph.sites.flow import CARRIER, MATMUL, SOFTMAX, SPLIT, operation

Part = tuple[int, ...]
"""What of a weight takes factors: these rows, or all columns."""

COLUMNS: Part = ()


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
    behind = behind_carriers(source)
    if operation(behind) in MATMUL and len(behind.all_input_nodes) == 2 and _leads_to_softmax(behind.args[0]):
        return _of_values(model, behind)
    return _of_tensor(model, site, call, source)


def gamma_of(model: QuantizedEncoder, channels: Channels) -> Tensor | None:
    """Return the weight of the norm that makes channels, (width,); None where none does."""
    if channels.norm is None:
        return None
    written = written_norm(channels.norm)
    weight = channels.norm.args[2] if written is None else written[0].args[written[1]]
    assert isinstance(weight, fx.Node)
    return model.graph.get_parameter(str(weight.target)).detach().float().cpu()


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
    for path in paths_to_readers(start):
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


# -- products ------------------------------------------------------------------------------------------------


def _product_after(call: fx.Node) -> fx.Node | None:
    """The matrix product of two activations that alone reads a site."""
    paths = list(paths_to_readers(call))
    if len(paths) != 1 or operation(paths[0][-1]) not in MATMUL:
        return None
    product = paths[0][-1]
    tensors = [node for node in product.args if isinstance(node, fx.Node)]
    return product if len(tensors) == 2 else None


def _leads_to_softmax(node: object) -> bool:
    assert isinstance(node, fx.Node)
    return operation(behind_carriers(node)) in SOFTMAX


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
        name: meets[_by_token(model, name, trace(path, number_rows(query.node)))]
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
        alike = operation(node) in CARRIER | {"add", "masked_fill", "where"} or is_quantizer(node)
        if not (alike or is_scaling(node)):
            return False
    return False


def _known(sites: dict[str, Tensor]) -> dict[str, Tensor]:
    if not sites or any(int(index.min()) < 0 for index in sites.values()):
        raise NoChannelsError("some of its channels meet nothing")
    return sites


def _sites_on(operand: fx.Node) -> Iterator[tuple[str, list[fx.Node]]]:
    """The sites on the way from a linear layer to a product, each with the nodes up to it."""
    path, _ = path_back(operand)
    for place, node in enumerate(path):
        if is_quantizer(node):
            yield site_name(node), path[: place + 1]


def _site_after(product: fx.Node) -> str | None:
    """The site of what a product makes, directly behind it."""
    node = product
    while len(node.users) == 1:
        node = next(iter(node.users))
        if is_quantizer(node):
            return site_name(node)
        if operation(node) != "dropout":
            break
    return None


def _elements(
    model: QuantizedEncoder, site: str, path: Sequence[fx.Node], rows: Tensor, maker: Rows
) -> Tensor:
    """The channel of every element of a site before a product: the place in `rows` of what makes it."""
    made = _by_token(model, site, trace(path, number_rows(maker.node)))
    places = torch.full((int(max(rows.max(), made.max())) + 1,), -1)
    places[rows] = torch.arange(len(rows))
    return places[made]


def _by_token(model: QuantizedEncoder, site: str, index: Tensor) -> Tensor:
    """Numbers of one token's elements at a site, in the order of its axes."""
    sizes = [size for size in model.quantizers[site].site.shape if isinstance(size, str)]
    if sizes != ["batch", "length"]:
        raise NoChannelsError("heads and texts share an axis")
    return index.flatten()


def _rows_to(node: fx.Node) -> tuple[Rows, Tensor]:
    """The linear layer that makes a node, which alone reads it, and the row that makes each element."""
    path, affine = path_back(node)
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
    index = trace(path, number_rows(linear))
    return Rows(
        linear, str(weight.target), index.flatten(), torch.arange(index.numel()), affine=affine
    ), index
