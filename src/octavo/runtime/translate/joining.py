"""Products of one tensor as one product: query, key and value.

ONNX Runtime spends a few microseconds on every node, which is what a short text waits for. Three products of
the same bytes whose results go to grids with the same zero-point are one product with the columns of all
three, each column scaled to the steps of its own grid, one rounding at step 1, and a split of bytes. The
integers of the sites keep their names; only the order of two float multiplications changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from octavo.runtime.translate.onnx_graph import OnnxGraph

if TYPE_CHECKING:
    from onnx import NodeProto

_PRODUCT = "MatMulIntegerToFloat"


def join_products(graph: OnnxGraph, results: Collection[str]) -> None:
    """Join the products of each tensor of bytes, where only quantizers of one zero-point read them.

    Arguments:
        results: names that the graph returns, which have to stay.
    """
    readers = _readers(graph.nodes)
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
            _join(graph, pairs)


def _readers(nodes: Iterable[NodeProto]) -> dict[str, list[NodeProto]]:
    readers: dict[str, list[NodeProto]] = {}
    for node in nodes:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    return readers


def _are_apart(pairs: Sequence[tuple[NodeProto, NodeProto]], readers: dict[str, list[NodeProto]]) -> bool:
    """Return whether each weight is read once: a shared one, as in ALBERT, would be stored again."""
    return all(len(readers[product.input[1]]) == 1 for product, _ in pairs)


def _join(graph: OnnxGraph, pairs: Sequence[tuple[NodeProto, NodeProto]]) -> None:
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
    parts = [made[-1].output[0], graph.constant(widths, np.int64)]
    made.append(helper.make_node("Split", parts, [each.output[0] for each in quantizers], axis=-1))
    graph.replace([*products, *quantizers], made)


def _array(graph: OnnxGraph, name: str) -> NDArray[Any]:
    from onnx import numpy_helper

    return numpy_helper.to_array(graph.initializers[name])
