"""An ONNX graph in the making: nodes in order, initializers stored once, names that stay unique."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

IR_VERSIONS = {17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11}
"""The oldest file format that each operator set may stand in: runtimes refuse files newer than themselves."""

_SHARED_BYTES = 1 << 16  # larger arrays are weights, which are stored once by their own names


class OnnxGraph:
    """Collects nodes and initializers and turns them into a model.

    Small constants are shared: asking twice for the same array gives one initializer.
    """

    def __init__(self, opset: int, reserved: Sequence[str] = ()) -> None:
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self._makers: dict[str, NodeProto] = {}
        self.initializers: dict[str, TensorProto] = {}
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._names: dict[str, int] = dict.fromkeys(
            reserved, 1
        )  # inputs and outputs keep their names to themselves

    def unique(self, name: str) -> str:
        """Return `name`, or `name_1`, `name_2` … if it was given out before."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return self.unique(f"{name}_{count}") if count else name

    def node(
        self, operator: str, inputs: Sequence[str], name: str = "", outputs: int = 1, **attributes: Any
    ) -> list[str]:
        """Add a node and return the names of its results. Empty input names stand for inputs left out."""
        from onnx import helper

        label = self.unique(name or "t")  # names are a tenth of what a small model adds to its weights
        results = [label] if outputs == 1 else [self.unique(f"{label}.{index}") for index in range(outputs)]
        made = helper.make_node(operator, list(inputs), results, **attributes)
        self.nodes.append(made)
        self._makers |= dict.fromkeys(results, made)
        return results

    def maker(self, name: str) -> NodeProto | None:
        """Return the node whose result a name is; None for inputs and initializers."""
        return self._makers.get(name)

    def bits(self, name: str) -> int:
        """Return the width of an integer initializer's numbers."""
        from onnx import helper

        return 8 * helper.tensor_dtype_to_np_dtype(self.initializers[name].data_type).itemsize

    def add(self, operator: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        """Add a node with one result and return its name."""
        return self.node(operator, inputs, name, **attributes)[0]

    def constant(self, value: Any, dtype: Any = None, name: str = "constant") -> str:
        """Return the name of an initializer that holds `value`."""
        array = np.asarray(value, dtype=dtype)
        key = (array.dtype.str, array.shape, array.tobytes() if array.nbytes <= _SHARED_BYTES else b"")
        if key[2] and key in self._shared:
            return self._shared[key]
        label = self.initializer(array, name)
        if key[2]:
            self._shared[key] = label
        return label

    def initializer(self, array: NDArray[Any], name: str) -> str:
        """Store an array under a name of its own."""
        from onnx import numpy_helper

        label = self.unique(name)
        self.initializers[label] = numpy_helper.from_array(
            np.ascontiguousarray(array).reshape(array.shape), label
        )
        return label

    def packed_initializer(self, integers: NDArray[Any], bits: int, signed: bool, name: str) -> str:
        """Store integers of 4 bits two to a byte, the first in the low half (INT4 or UINT4)."""
        from onnx import TensorProto

        assert bits == 4
        label = self.unique(name)
        flat = (integers.reshape(-1).astype(np.int16) & 0xF).astype(np.uint8)
        flat = np.append(flat, np.zeros(len(flat) % 2, np.uint8))
        tensor = TensorProto(name=label, data_type=TensorProto.INT4 if signed else TensorProto.UINT4)
        tensor.dims.extend(integers.shape)
        tensor.raw_data = (flat[0::2] | flat[1::2] << 4).tobytes()
        self.initializers[label] = tensor
        return label

    def replace(self, old: Sequence[NodeProto], new: Sequence[NodeProto]) -> None:
        """Put nodes in the place of others, the first of which stands where all can."""
        gone = {id(node) for node in old}
        place = next(index for index, node in enumerate(self.nodes) if id(node) in gone)
        kept = [node for node in self.nodes[place:] if id(node) not in gone]
        self.nodes = [*self.nodes[:place], *new, *kept]
        self._makers |= {result: node for node in new for result in node.output}

    def rename(self, old: str, new: str) -> None:
        """Give a result the name users know it by."""
        from onnx import helper

        self.nodes.append(helper.make_node("Identity", [old], [new]))

    def model(
        self, inputs: Sequence[Any], outputs: Sequence[Any], name: str, metadata: dict[str, str]
    ) -> ModelProto:
        """Return the model with only those nodes and initializers that its outputs need."""
        from onnx import helper

        nodes = self._needed(value.name for value in outputs)
        read = {source for node in nodes for source in node.input}
        graph = helper.make_graph(
            nodes,
            name,
            list(inputs),
            list(outputs),
            [t for label, t in self.initializers.items() if label in read],
        )
        others = sorted({node.domain for node in nodes} - {""})
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(name, 1) for name in others)]
        model = helper.make_model(graph, opset_imports=opsets, producer_name="octavo")
        model.ir_version = IR_VERSIONS[self.opset]
        helper.set_model_props(model, metadata)
        return model

    def _needed(self, results: Any) -> list[NodeProto]:
        wanted = set(results)
        kept = []
        for node in reversed(self.nodes):
            if wanted.intersection(node.output):
                kept.append(node)
                wanted.update(node.input)
        return kept[::-1]
