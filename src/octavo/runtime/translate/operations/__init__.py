"""How each ATen operation is written as ONNX."""

from octavo.runtime.translate.operations import elementwise, neural, shapes, tensors
from octavo.runtime.translate.operations.table import TABLE as TABLE

__all__ = ["TABLE", "elementwise", "neural", "shapes", "tensors"]
