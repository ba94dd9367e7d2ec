"""A translation that stores nothing: can this graph be written at all?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelError
from octavo.graph.encoder import Encoder
from octavo.runtime.translate.onnx_graph import OnnxGraph
from octavo.runtime.translate.options import Options
from octavo.runtime.translate.walk import write_nodes

_OPSET = 21


class _DryGraph(OnnxGraph):
    """A graph whose initializers have a type and a shape, and no numbers."""

    def initializer(self, array: NDArray[Any], name: str) -> str:
        """Note an array without its numbers."""
        from onnx import TensorProto, helper

        label = self.unique(name)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(array.dtype))
        self.initializers[label] = TensorProto(name=label, data_type=kind, dims=array.shape)
        return label


def dry_run(model: Encoder) -> None:
    """Translate a model into nothing; what has no translation is an error that names it."""
    try:
        write_nodes(model.graph, _DryGraph(_OPSET), Options())
    except ModelError as error:
        raise ModelError(f"{model.name} cannot be exported: {error}") from error
