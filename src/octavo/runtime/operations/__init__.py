"""How each ATen operation is written as ONNX."""

from octavo.runtime.operations import elementwise, neural, shapes, tensors
from octavo.runtime.operations.table import TABLE as TABLE

__all__ = ["TABLE", "elementwise", "neural", "shapes", "tensors"]
