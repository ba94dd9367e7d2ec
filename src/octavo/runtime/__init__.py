"""Integer artifacts: ONNX export, runtimes, encodings, benchmarks."""

from octavo.runtime.export import export_onnx as export_onnx
