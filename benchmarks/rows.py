"""Rows of a benchmark on one model: each recipe quantized and measured, written at once, never done twice."""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from recipes import measure, texts_for

import octavo
from octavo.versions import versions

Plan = tuple[dict[str, Any], octavo.Recipe]
"""What a row is, in words that tell it from all others, and its recipe."""

STREAM = (
    "embedding_sum",
    "embedding_projection",
    "embedding_norm",
    "attention_input",
    "attention_output",
    "attention_residual",
    "ffn_input",
    "ffn_output",
    "ffn_residual",
    "layer_output",
    "final_norm",
)
"""What is as wide as the residual stream."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what every such benchmark asks for."""
    parser.add_argument("model")
    parser.add_argument("--glue", required=True, type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)


def measure_rows(options: argparse.Namespace, script: str, plans: Iterable[Plan]) -> None:
    """Measure every row that the output lacks, and write it after each."""
    warnings.simplefilter("ignore", octavo.OctavoWarning)
    encoder = octavo.load(options.model)
    calibration, texts = texts_for(encoder, options.glue)
    name = Path(options.model).name
    result: dict[str, Any] = {
        "command": f"python benchmarks/{script}.py {name}",
        "model": name,
        "calibration": len(calibration),
        "texts": len(texts),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "rows": [],
    }
    if options.output.is_file():
        result["rows"] = json.loads(options.output.read_text(encoding="utf-8"))["rows"]
    for about, recipe in plans:
        if any(row.items() >= about.items() for row in result["rows"]):
            continue
        start = time.perf_counter()
        model = octavo.quantize(encoder, recipe, calibration)
        seconds = round(time.perf_counter() - start, 1)
        row = {**about, **measure(model, encoder, texts), "seconds": seconds}
        result["rows"].append(row)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(row), flush=True)
