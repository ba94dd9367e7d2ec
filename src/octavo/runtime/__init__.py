"""Integer artifacts: ONNX export, runtimes, encodings, benchmarks.

Names are imported on first use: a process that only runs a file needs neither torch nor onnx.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.runtime.bench import bench as bench
    from octavo.runtime.embedder import Embedder as Embedder
    from octavo.runtime.encodings import encodings as encodings
    from octavo.runtime.export import export_onnx as export_onnx
    from octavo.runtime.integers import check_integers as check_integers
    from octavo.runtime.session import open_onnx as open_onnx

_LAZY = {
    "bench": "bench",
    "Embedder": "embedder",
    "encodings": "encodings",
    "export_onnx": "export",
    "check_integers": "integers",
    "open_onnx": "session",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'octavo.runtime' has no attribute {name!r}")
    return getattr(import_module(f"octavo.runtime.{_LAZY[name]}"), name)
