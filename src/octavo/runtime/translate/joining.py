"""Products of one tensor as one product: query, key and value.

ONNX Runtime spends a few microseconds on every node, which is what a short text waits for. Three products of
the same bytes whose results go to grids with the same zero-point are one product with the columns of all
three, each column scaled to the steps of its own grid, one rounding at step 1, and a split of bytes. The
integers of the sites keep their names; only the order of two float multiplications changes.

Where each part would go into heads by a view and a transposition of its own, all go at once, and the split
is one of heads: their integers then stand as (batch, heads, length, width), which `site_integers` undoes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from octavo.runtime.translate.onnx_graph import OnnxGraph

if TYPE_CHECKING:
    from onnx import NodeProto

_PRODUCT = "MatMulIntegerToFloat"
_HEADS_FIRST = (0, 2, 1, 3)
"""The order of axes in which heads stand beside the batch, as attention multiplies them."""


def join_products(graph: OnnxGraph, results: Collection[str]) -> None:
    """Join the products of each tensor of bytes, where only quantizers of one zero-point read them.

    Arguments:
        results: names that the graph returns, which have to stay.
    """
    readers = _readers(graph.nodes)
    shapes: dict[str, str] = {}
    groups: dict[tuple[str, ...], list[tuple[NodeProto, NodeProto]]] = {}
    for node in graph.nodes:
        if node.op_type != _PRODUCT or node.output[0] in results or len(node.input) != 7:
            continue
        found = readers.get(node.output[0], [])
        # a product of two activations has nothing stored that could be joined
        if len(found) == 1 and found[0].op_type == "QuantizeLinear" and node.input[1] in graph.initializers:
            key = (node.input[0], node.input[2], node.input[4], found[0].input[2])
            groups.setdefault(key, []).append((node, found[0]))
    for pairs in groups.values():
        if len(pairs) > 1 and _are_apart(pairs, readers):
            _join(graph, pairs, _common_heads(graph, pairs, readers), shapes)


def _readers(nodes: Iterable[NodeProto]) -> dict[str, list[NodeProto]]:
    readers: dict[str, list[NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return readers


def _are_apart(pairs: Sequence[tuple[NodeProto, NodeProto]], readers: dict[str, list[NodeProto]]) -> bool:
    """Return whether each weight is read once: a shared one, as in ALBERT, would be stored again."""
    return all(len(readers[product.input[1]]) == 1 for product, _ in pairs)


@dataclass(frozen=True, kw_only=True)
class _Heads:
    """How each of some tensors of bytes goes into heads, by a view and a transposition.

    Arguments:
        count, width: of the heads of each tensor.
        chains: of each tensor its DequantizeLinear, its view and its transposition.
        sizes: the name of (batch, length), with which the view's shape begins.
    """

    count: int
    width: int
    chains: tuple[tuple[NodeProto, NodeProto, NodeProto], ...]
    sizes: str


def _common_heads(
    graph: OnnxGraph, pairs: Sequence[tuple[NodeProto, NodeProto]], readers: dict[str, list[NodeProto]]
) -> _Heads | None:
    """Return the heads that the results of all products go into, if nothing else is done with them."""
    chains = []
    for _, quantizer in pairs:
        steps, name = [], quantizer.output[0]
        for wanted in ("DequantizeLinear", "Reshape", "Transpose"):
            found = readers.get(name, [])
            if len(found) != 1 or found[0].op_type != wanted:
                return None
            steps.append(found[0])
            name = found[0].output[0]
        chains.append((steps[0], steps[1], steps[2]))
    views = {view.input[1] for _, view, _ in chains}
    orders = {tuple(turn.attribute[0].ints) for _, _, turn in chains}
    shape = graph.maker(views.pop()) if len(views) == 1 else None
    if orders != {_HEADS_FIRST} or shape is None or shape.op_type != "Concat" or len(shape.input) != 2:
        return None
    sizes = graph.maker(shape.input[0])
    if sizes is None or sizes.op_type != "Shape" or shape.input[1] not in graph.initializers:
        return None
    heads = [int(size) for size in _array(graph, shape.input[1])]
    if len(heads) != 2 or any(_array(graph, p.input[1]).shape[1] != heads[0] * heads[1] for p, _ in pairs):
        return None
    return _Heads(count=heads[0], width=heads[1], chains=tuple(chains), sizes=sizes.input[0])


def _join(
    graph: OnnxGraph,
    pairs: Sequence[tuple[NodeProto, NodeProto]],
    heads: _Heads | None,
    shapes: dict[str, str],
) -> None:
    from onnx import helper

    products, quantizers = zip(*pairs, strict=True)
    first = products[0]
    name = "+".join(product.output[0] for product in products)
    weights = [_array(graph, product.input[1]) for product in products]
    widths = [weight.shape[1] for weight in weights]
    steps = [np.float64(_array(graph, quantizer.input[1])) for quantizer in quantizers]

    def columns(index: int) -> list[NDArray[Any]]:
        arrays = (_array(graph, product.input[index]) for product in products)
        return [np.broadcast_to(each, width) for each, width in zip(arrays, widths, strict=True)]

    def in_steps(index: int) -> NDArray[np.float64]:
        return np.concatenate([part / step for part, step in zip(columns(index), steps, strict=True)])

    inputs = [
        first.input[0],
        graph.initializer(np.concatenate(weights, axis=1), f"{name}.weight"),
        first.input[2],
        graph.constant(in_steps(3), np.float32, "scale"),
        first.input[4],
        graph.constant(np.concatenate(columns(5)), name="zero_point"),
        graph.constant(in_steps(6), np.float32, f"{name}.bias"),
    ]
    rounded = [graph.unique(name), graph.constant(1.0, np.float32, "scale"), quantizers[0].input[2]]
    made = [
        helper.make_node(_PRODUCT, inputs, rounded[:1], domain=first.domain),
        helper.make_node("QuantizeLinear", rounded, [graph.unique("t")]),
    ]
    results = [each.output[0] for each in quantizers]
    if heads is None:
        parts = [made[-1].output[0], graph.constant(widths, np.int64)]
        made.append(helper.make_node("Split", parts, results, axis=-1))
        graph.replace([*products, *quantizers], made)
        return
    made += _in_heads(graph, made[-1].output[0], results, heads, shapes)
    graph.replace([*products, *quantizers, *chain.from_iterable(heads.chains)], made)


def _in_heads(
    graph: OnnxGraph, joined: str, results: Sequence[str], heads: _Heads, shapes: dict[str, str]
) -> list[NodeProto]:
    """Return the nodes that bring joined bytes into heads, split them and dequantize each part."""
    from onnx import helper

    made = []
    key = f"{heads.sizes} {len(results)} {heads.count} {heads.width}"
    if key not in shapes:  # of all layers
        shapes[key] = graph.unique("t")
        rest = graph.constant([len(results) * heads.count, heads.width], np.int64)
        sizes = graph.unique("t")
        made.append(helper.make_node("Shape", [heads.sizes], [sizes]))
        made.append(helper.make_node("Concat", [sizes, rest], [shapes[key]], axis=0))
    view, turned = graph.unique("t"), graph.unique("t")
    made.append(helper.make_node("Reshape", [joined, shapes[key]], [view]))
    made.append(helper.make_node("Transpose", [view], [turned], perm=_HEADS_FIRST))
    counts = graph.constant([heads.count] * len(results), np.int64)
    made.append(helper.make_node("Split", [turned, counts], results, axis=1))
    for floats, _, turn in heads.chains:
        made.append(helper.make_node("DequantizeLinear", floats.input, turn.output))
    return made


def _array(graph: OnnxGraph, name: str) -> NDArray[Any]:
    from onnx import numpy_helper

    return numpy_helper.to_array(graph.initializers[name])
