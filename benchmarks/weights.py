"""Measure how weights are rounded: nearest, AdaRound, GPTQ, bias correction.

    python benchmarks/weights.py --glue GLUE_DIR --model demo:minilm -o results/methods/weights-minilm.json

Calibration: the first different first sentences of STS-B's train set. Fidelity: cosine to FP32, mean and
worst, on 200 sentences spread over STS-B's dev set (every k-th first sentence), in simulation. Rows that the
file has already are kept, so that an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import octavo
from octavo.errors import OctavoWarning
from octavo.fidelity import Reference
from octavo.spec import AdaRound, BiasCorrection, Gptq, Mse, Override, Pass, PerChannel, Recipe, TensorSpec
from octavo.versions import versions

_TENSOR = Recipe(
    name="per tensor", weights=TensorSpec(bits=4, symmetric=True, estimator=Mse()), activations=None
)
_ROW = replace(
    _TENSOR,
    name="per row",
    weights=TensorSpec(bits=4, symmetric=True, estimator=Mse(), granularity=PerChannel()),
    overrides=(Override(roles=("norm_weight",), off=True),),
)
_W8 = replace(_ROW, name="W8 per row", weights=TensorSpec(bits=8, symmetric=True, granularity=PerChannel()))
_ADAROUND = AdaRound(iterations=300, shrinkage=0.7, asymmetric=False)
_ROUNDINGS: dict[str, tuple[Pass, ...]] = {
    "nearest": (),
    "nearest, bias correction": (BiasCorrection(),),
    "nearest, bias correction by the mean": (BiasCorrection(robust=False),),
    "GPTQ": (Gptq(),),
    "GPTQ without order": (Gptq(order=False),),
    "GPTQ as published": (Gptq(order=False, shrinkage=0.0),),
    "GPTQ as published, order": (Gptq(shrinkage=0.0),),
    "GPTQ, 2 sweeps": (Gptq(sweeps=2),),
    "GPTQ, asymmetric": (Gptq(asymmetric=True),),
    "GPTQ, bias correction": (Gptq(), BiasCorrection()),
    "AdaRound": (_ADAROUND,),
    "AdaRound as published": (AdaRound(iterations=300),),
}


def sentences(file: Path, count: int, *, spread: bool) -> list[str]:
    """Return different first sentences: from the start of a file of STS-B, or spread over it."""
    lines = file.read_text(encoding="utf-8").splitlines()
    column = lines[0].split("\t").index("sentence1")
    rows = [line.split("\t") for line in lines[1:]]
    found = list(dict.fromkeys(row[column] for row in rows if len(row) > column))
    return found[:: max(len(found) // count, 1)][:count] if spread else found[:count]


def variants() -> Iterator[tuple[str, Recipe]]:
    """Yield 4-bit weights alone by every rounding, then 8-bit weights."""
    for base in (_ROW, _TENSOR):
        for rounding, passes in _ROUNDINGS.items():
            yield f"W4A32 {base.name}, {rounding}", replace(base, passes=passes)
    for rounding in ("nearest", "GPTQ", "AdaRound"):
        yield f"{_W8.name}, {rounding}", replace(_W8, passes=_ROUNDINGS[rounding])


def measure(encoder: Any, reference: Reference, recipe: Recipe, texts: list[str]) -> dict[str, Any]:
    """Quantize and compare; size is that of the saved weights, the peak that of all rows so far."""
    started = time.perf_counter(), time.process_time()
    model = octavo.quantize(encoder, recipe, texts)
    seconds, processor = time.perf_counter() - started[0], time.process_time() - started[1]
    with tempfile.TemporaryDirectory() as folder:
        size = (model.save(Path(folder) / "model") / "model.safetensors").stat().st_size
    cosine = reference.compare(model).to_dict()["cosine"]
    return {
        "cosine": cosine,
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000,
        "bytes": size,
    }


def main() -> None:
    """Measure what the file lacks, and write it after every row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--glue", type=Path, required=True)
    parser.add_argument("--model", default="demo:minilm")
    parser.add_argument("--texts", type=int, nargs="+", default=[64])
    parser.add_argument("--only", nargs="+", help="variants of these names, as in the results")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    warnings.simplefilter("ignore", OctavoWarning)
    train = sentences(options.glue / "STS-B/train.tsv", max(options.texts), spread=False)
    encoder = octavo.load(options.model)
    reference = Reference.of_texts(encoder, sentences(options.glue / "STS-B/dev.tsv", 200, spread=True))
    known = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    rows: list[dict[str, Any]] = known.get("rows", [])
    done = {(row["name"], row["texts"]) for row in rows}
    for name, recipe in variants():
        for count in options.texts:
            if (name, count) in done or (options.only and name not in options.only):
                continue
            row = {"name": name, "texts": count, **measure(encoder, reference, recipe, train[:count])}
            rows.append(row)
            result = {
                "command": f"python benchmarks/weights.py --model {Path(options.model).name}",
                "model": Path(options.model).name,
                "threads": torch.get_num_threads(),
                "versions": versions(),
                "rows": rows,
            }
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
