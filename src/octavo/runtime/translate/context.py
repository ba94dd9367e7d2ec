"""A translation under way: the ONNX graph being written and the value of every node of the captured graph.

One thing is decided here rather than in the operations: a hidden state (batch, length, width) travels *flat*,
as (batch · length, width), wherever only its rows matter, because runtimes have integer kernels with bias for
matrices (Gemm) and not for stacks of them. ONNX Runtime also leaves a sum and the norm after it alone then;
those of stacks it fuses into a kernel that takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from octavo.errors import ModelError
from octavo.graph.quantizers.quantizer import Quantizer
from octavo.runtime.translate.onnx_graph import OnnxGraph
from octavo.runtime.translate.options import Options

ONNX_TYPES = {
    torch.float32: 1, torch.uint8: 2, torch.int8: 3, torch.int16: 5, torch.int32: 6, torch.int64: 7,
    torch.bool: 9,
    torch.float16: 10, torch.float64: 11,
}  # fmt: skip
_NUMPY_TYPES = {
    torch.bool: np.bool_, torch.float32: np.float32, torch.float64: np.float64, torch.int64: np.int64,
    torch.int32: np.int32, torch.int16: np.int16, torch.int8: np.int8, torch.uint8: np.uint8,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Value:
    """One tensor of the ONNX graph; flat if its first two axes are one; `scale` if just dequantized."""

    name: str
    scale: float | None = None
    flat: bool = False


_NOTHING: Mapping[Any, Any] = MappingProxyType({})


class Translation:
    """What has been written so far, and how operations read and add to it.

    Arguments:
        module: the captured graph.
        graph: the ONNX graph to write.
        options: what the backend asks for.
        factors: constants to be folded into the dequantization or the weight's scale of a node.
        replaced: multiplications that were folded away, each with the node that stands for it.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        graph: OnnxGraph,
        options: Options | None = None,
        *,
        factors: Mapping[fx.Node, float] = _NOTHING,
        replaced: Mapping[fx.Node, fx.Node] = _NOTHING,
    ) -> None:
        self.module = module
        self.graph = graph
        self.options = options or Options()
        self.factors = factors
        self.replaced = replaced
        self.values: dict[fx.Node, Value | list[Value]] = {}
        self.weights: dict[fx.Node, Quantizer] = {}  # quantizers of weights, written where they are read
        self.stored: dict[tuple[str, bool], str] = {}  # integer weights by site, and whether transposed
        self._deferred: dict[fx.Node, Callable[[], str]] = {}
        self._cache: dict[tuple[str, ...], str] = {}
        first = next(node for node in module.graph.nodes if node.op == "placeholder")
        self.first = str(first.target)
        self.batch, self.length = (str(size) for size in first.meta["val"].shape)
        self.rounds_activations = any(
            isinstance(each, Quantizer) and each.site.kind == "activation" for each in module.modules()
        )

    def defer(self, node: fx.Node, write: Callable[[], str]) -> None:
        """Have a node written when an operation first reads it, by a function that returns its name."""
        self._deferred[node] = write

    # -- reading values --------------------------------------------------------------------------------------

    def value(self, node: fx.Node) -> Value:
        """Return the value of a node as it stands: perhaps flat, perhaps just dequantized."""
        if node not in self.values:
            self.values[node] = Value(name=self._parameter(node))
        value = self.values[node]
        assert isinstance(value, Value), node
        return value

    def full(self, node: Any, dtype: torch.dtype | None = None) -> str:
        """Return the tensor of an argument in its own shape; numbers become constants of `dtype`."""
        if not isinstance(node, fx.Node):
            return self.graph.constant(node, _NUMPY_TYPES[dtype or torch.get_default_dtype()])
        if not isinstance(node.meta.get("val"), Tensor) and not isinstance(self.values.get(node), list):
            return self._cast(self.size(node), torch.int64, dtype)
        value = self.unflatten(self.value(node), node)
        return self._cast(value.name, node.meta["val"].dtype, dtype)

    def rows(self, node: fx.Node) -> str:
        """Return the float tensor of a hidden state as a matrix (rows, width)."""
        return self.flatten(self.value(node), node).name

    def flatten(self, value: Value, node: fx.Node) -> Value:
        """Turn (batch, length, width) into (batch · length, width)."""
        if value.flat:
            return value
        width = node.meta["val"].shape[-1]
        return replace(
            value,
            flat=True,
            name=self.once("Reshape", value.name, self.graph.constant([-1, width], np.int64)),
        )

    def unflatten(self, value: Value, node: fx.Node) -> Value:
        """Undo `flatten`."""
        if not value.flat:
            return value
        shape = self.shape([*node.meta["val"].shape])
        return replace(value, flat=False, name=self.once("Reshape", value.name, shape))

    def is_hidden_state(self, node: Any) -> bool:
        """Return whether a node is (batch, length, width) with a fixed width, so that it can travel flat."""
        value = node.meta.get("val") if isinstance(node, fx.Node) and self.options.flattens else None
        if not isinstance(value, Tensor) or value.dim() != 3 or not isinstance(value.shape[2], int):
            return False
        return (str(value.shape[0]), str(value.shape[1])) == (self.batch, self.length)

    def once(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node, or return the result of the equal node that was added before."""
        key = (operator, *inputs, repr(sorted(attributes.items())))
        return self.shared(key, lambda: self.graph.add(operator, *inputs, **attributes))

    def shared(self, key: tuple[str, ...], write: Callable[[], str]) -> str:
        """Return what is written under a key, which is written when it is first asked for."""
        if key not in self._cache:
            self._cache[key] = write()
        return self._cache[key]

    def tensor(self, node: fx.Node) -> Tensor | None:
        """Return the parameter or buffer behind a `get_attr` node."""
        value: Any = self.module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value if isinstance(value, Tensor) else None

    def _parameter(self, node: fx.Node) -> str:
        if node in self._deferred:
            return self._deferred[node]()
        assert node.op == "get_attr", node
        tensor = self.tensor(node)
        assert tensor is not None
        shared = isinstance(tensor, nn.Parameter)
        key = ("parameter", str(id(tensor)))  # tied ones have several targets
        if key not in self._cache:
            array = tensor.detach().cpu().numpy()
            store = self.graph.initializer if shared else self.graph.constant
            self._cache[key] = store(array, name=str(node.target))
        return self._cache[key]

    def _cast(self, name: str, dtype: torch.dtype, wanted: torch.dtype | None) -> str:
        return name if wanted in (None, dtype) else self.once("Cast", name, to=ONNX_TYPES[wanted])

    # -- sizes -----------------------------------------------------------------------------------------------

    def size(self, size: Any) -> str:
        """Return a size as an int64 tensor of one entry: a number, a symbol of export, or a node."""
        if isinstance(size, int):
            return self.graph.constant([size], np.int64)
        symbol = str(size.meta.get("val")) if isinstance(size, fx.Node) else str(size)
        if symbol in (self.batch, self.length):
            start = 0 if symbol == self.batch else 1
            return self.once("Shape", self.first, start=start, end=start + 1)
        if isinstance(size, fx.Node):
            return self.value(size).name
        return self._expression(size)

    def shape(self, sizes: Sequence[Any]) -> str:
        """Return a shape as one int64 tensor."""
        if all(isinstance(size, int) for size in sizes):
            return self.graph.constant(list(sizes), np.int64)
        symbols = [str(size.meta.get("val")) if isinstance(size, fx.Node) else str(size) for size in sizes]
        if symbols[:2] == [self.batch, self.length]:
            rest = [self.shape(sizes[2:])] if len(sizes) > 2 else []
            parts = [self.once("Shape", self.first), *rest]
        else:
            parts = [self.size(size) for size in sizes]
        return self.once("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def _expression(self, size: Any) -> str:
        """Write a symbolic product or sum of batch and length."""
        import sympy  # type: ignore[import-untyped]

        expression = size.node.expr if hasattr(size, "node") else size
        return self._sympy(expression, {sympy.Symbol(self.batch).name: self.batch, self.length: self.length})

    def _sympy(self, expression: Any, symbols: dict[str, str]) -> str:
        if expression.is_Integer:
            return self.graph.constant([int(expression)], np.int64)
        if expression.is_Symbol and str(expression) in symbols:
            start = 0 if str(expression) == self.batch else 1
            return self.once("Shape", self.first, start=start, end=start + 1)
        operators = {"Add": "Add", "Mul": "Mul"}
        kind = type(expression).__name__
        if kind not in operators:
            raise ModelError(
                f"a size of the graph, {expression}, cannot be written as ONNX; export is not possible"
            )
        parts = [self._sympy(part, symbols) for part in expression.args]
        total = parts[0]
        for part in parts[1:]:
            total = self.once(operators[kind], total, part)
        return total
