"""Artifacts that compute in integers: export, backends, encodings, benchmarks.

Names are imported on first use: a process that only runs a file needs neither torch nor onnx.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.runtime.artifacts import open_onnx as open_onnx
    from octavo.runtime.backends import BACKENDS as BACKENDS
    from octavo.runtime.backends import Backend as Backend
    from octavo.runtime.benchmark import bench as bench
    from octavo.runtime.classifier import Classifier as Classifier
    from octavo.runtime.embedder import Embedder as Embedder
    from octavo.runtime.encoding_files import encodings as encodings
    from octavo.runtime.exporting import check_exportable as check_exportable
    from octavo.runtime.exporting import export as export
    from octavo.runtime.exporting import export_onnx as export_onnx
    from octavo.runtime.file_model import FileModel as FileModel
    from octavo.runtime.file_model import open_model as open_model
    from octavo.runtime.integers import check_integers as check_integers
    from octavo.runtime.narrowing import narrowed_weights as narrowed_weights
    from octavo.runtime.reader import Reader as Reader
    from octavo.runtime.tagger import Tagger as Tagger

_LAZY = {
    "BACKENDS": "backends",
    "Backend": "backends",
    "Classifier": "classifier",
    "Embedder": "embedder",
    "FileModel": "file_model",
    "Reader": "reader",
    "Tagger": "tagger",
    "bench": "benchmark",
    "check_exportable": "exporting",
    "check_integers": "integers",
    "encodings": "encoding_files",
    "export": "exporting",
    "export_onnx": "exporting",
    "narrowed_weights": "narrowing",
    "open_model": "file_model",
    "open_onnx": "artifacts",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'octavo.runtime' has no attribute {name!r}")
    return getattr(import_module(f"octavo.runtime.{_LAZY[name]}"), name)
