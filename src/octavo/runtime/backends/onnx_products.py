"""The products of an ONNX graph whose operands are both bytes."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

PRODUCTS = frozenset({"Gemm", "MatMul", "MatMulIntegerToFloat", "Conv"})
"""The operators that Octavo writes products as."""

_BYTES = frozenset({2, 3})  # UINT8, INT8


def quantized_products(path: Path) -> dict[str, str]:
    """Return the results of products of dequantized bytes, each with the weight it reads or ""."""
    import onnx

    return products_of_bytes(onnx.load(str(path), load_external_data=False).graph, PRODUCTS)


def other_names(path: Path) -> dict[str, str]:
    """Return the results that go on under another name, an output's, by that name."""
    import onnx

    nodes = onnx.load(str(path), load_external_data=False).graph.node
    return {node.output[0]: node.input[0] for node in nodes if node.op_type == "Identity"}


def products_of_bytes(graph: GraphProto, operators: Container[str]) -> dict[str, str]:
    """Return the same for a graph in memory and the products among `operators`."""
    makers = {result: node for node in graph.node for result in node.output}
    stored = {tensor.name: tensor.data_type for tensor in graph.initializer}
    products = {}
    for node in graph.node:
        if node.op_type == "MatMulIntegerToFloat" and node.op_type in operators:
            products[node.output[0]] = node.input[1] if node.input[1] in stored else ""
        elif node.op_type in operators and all(_is_bytes(name, makers, stored) for name in node.input[:2]):
            sources = (_source(name, makers) for name in node.input[:2])
            products[node.output[0]] = next((name for name in sources if name in stored), "")
    return products


def split_in_heads(graph: GraphProto) -> set[str]:
    """Return the bytes that were split after they went into heads, (batch, heads, length, width)."""
    return {
        name
        for node in graph.node
        if node.op_type == "Split" and any(a.name == "axis" and a.i == 1 for a in node.attribute)
        for name in node.output
    }


def _source(name: str, makers: dict[str, NodeProto]) -> str:
    """Return what is dequantized behind a name, past transposes and views."""
    node = makers.get(name)
    while node is not None and node.op_type in ("Transpose", "Reshape"):
        node = makers.get(node.input[0])
    return node.input[0] if node is not None and node.op_type == "DequantizeLinear" else ""


def _is_bytes(name: str, makers: dict[str, NodeProto], stored: dict[str, int]) -> bool:
    source = _source(name, makers)
    if source in stored:
        return stored[source] in _BYTES
    node = makers.get(source)
    if node is not None and node.op_type == "Split":  # products of one tensor are joined
        node = makers.get(node.input[0])
        while node is not None and node.op_type in ("Transpose", "Reshape"):
            node = makers.get(node.input[0])
    return node is not None and node.op_type == "QuantizeLinear" and stored.get(node.input[2]) in _BYTES
