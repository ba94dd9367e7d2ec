"""Exported files in JavaScript: how far embeddings are from Python's and from FP32, and what `web` costs.

Needs Node and the packages of tests/browser/package.json (`npm install --ignore-scripts` there).

    python benchmarks/browser.py -o results/deploy/browser.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from output import add_options, report

import octavo
from octavo.runtime import Embedder
from octavo.runtime.artifacts import open_onnx
from octavo.runtime.hub.layout import write_hub_folder
from octavo.tasks.demo import split_demo_texts
from octavo.versions import processor, versions

SHAPES = ("1x16", "1x64", "8x64", "32x128")
SCRIPTS = Path(__file__).parents[1] / "tests" / "browser"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=128, help="texts to compare")
    parser.add_argument("--runs", type=int, default=15, help="of each file and shape, in turns")
    add_options(parser)
    options = parser.parse_args()
    encoder = octavo.load("demo:minilm")
    model = octavo.quantize(encoder, octavo.recipe("int8"), calibration=octavo.demo_texts())
    texts = [text for text in split_demo_texts()[1] if isinstance(text, str)][: options.limit]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "minilm"
        write_hub_folder(model, folder, against=encoder, float_onnx=True)
        (Path(name) / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
        exact, ours = (in_python(folder / "onnx" / f, texts) for f in ("model.onnx", "model_quantized.onnx"))
        quantized = folder / "onnx" / "model_quantized.onnx"
        rows = [
            row("onnxruntime, Python", ours, ours, exact),
            row("transformers.js in Node", *in_node("transformers.mjs", name, name, "minilm"), ours, exact),
            row("onnxruntime-web, int8", *in_node("runtime.mjs", name, folder, quantized), ours, exact),
            row(
                "onnxruntime-web, float",
                *in_node("runtime.mjs", name, folder, folder / "onnx" / "model.onnx"),
                exact,
                exact,
            ),
        ]
        servers = octavo.export(model, Path(name) / "vnni.onnx")
        milliseconds = times(Path(name), [servers, quantized], options.runs)
    packages = json.loads((SCRIPTS / "package.json").read_text(encoding="utf-8"))["dependencies"]
    about = {"versions": versions() | packages, "processor": processor(), "texts": len(texts)}
    found = {"command": "python benchmarks/browser.py", **about, "rows": rows, "milliseconds": milliseconds}
    report(found, options.output)


def in_python(file: Path, texts: list[str]) -> NDArray[Any]:
    embedder = Embedder(file, threads=1)
    return np.stack([embedder.encode(text) for text in texts])


def in_node(script: str, folder: str, *arguments: object) -> tuple[NDArray[Any], float]:
    """Return embeddings, and the seconds for all of them, loading included."""
    out = Path(folder) / "out.json"
    texts = Path(folder) / "texts.json"
    started = time.perf_counter()
    command = ["node", str(SCRIPTS / script), *map(str, arguments), str(texts), str(out)]
    subprocess.run(command, check=True)
    return np.array(json.loads(out.read_text(encoding="utf-8"))), time.perf_counter() - started


def times(folder: Path, files: list[Path], runs: int) -> dict[str, dict[str, list[float]]]:
    """Return medians for `vnni` and `web`, on one thread, by shape, in Python and in WebAssembly."""
    out = folder / "times.json"
    command = ["node", str(SCRIPTS / "times.mjs"), str(runs), ",".join(SHAPES), str(out), *map(str, files)]
    subprocess.run(command, check=True)
    web = json.loads(out.read_text(encoding="utf-8"))
    opened = [open_onnx(file, threads=1) for file in files]
    here: dict[str, list[float]] = {}
    for shape in SHAPES:
        size = tuple(map(int, shape.split("x")))
        filled = {"input_ids": 2000, "attention_mask": 1, "token_type_ids": 0}
        batch = {name: np.full(size, value, dtype=np.int64) for name, value in filled.items()}
        seconds: list[list[float]] = [[] for _ in files]
        for _ in range(runs + 1):
            for run, spent in zip(opened, seconds, strict=True):
                started = time.perf_counter()
                run(batch)
                spent.append(time.perf_counter() - started)
        here[shape] = [1e3 * float(np.median(each[1:])) for each in seconds]
    return {shape: {"Python": here[shape], "WebAssembly": web[shape]} for shape in SHAPES}


def row(name: str, found: NDArray[Any], *rest: Any) -> dict[str, Any]:
    numbers = [each for each in rest if isinstance(each, float)]
    python, exact = [each for each in rest if isinstance(each, np.ndarray)]
    same, right = ((found * other).sum(1) for other in (python, exact))
    return {
        "name": name,
        "to_python": {
            "mean": float(same.mean()),
            "worst": float(same.min()),
            "above": float((same > 0.9999).mean()),
        },
        "to_fp32": {"mean": float(right.mean()), "worst": float(right.min())},
        "seconds": numbers[0] if numbers else None,
    }


if __name__ == "__main__":
    main()
