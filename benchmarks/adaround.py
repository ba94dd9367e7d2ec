"""Measure AdaRound: how long it takes and how much of the gap between rounding to nearest and FP32 it closes.

    python benchmarks/adaround.py [--model demo:minilm] [--texts 256] [--iterations 1000] [--device cpu]

The first texts of the file are for rounding; fidelity is measured on the 128 after them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import octavo
from octavo.spec import AdaRound
from octavo.tasks import compare, read_texts
from octavo.versions import versions

_DEMO_TEXTS = Path(octavo.__file__).parent / "demo_texts.txt"
_TEST_TEXTS = 128


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Round with both methods on the same grid and compare each with FP32."""
    texts = read_texts(options.texts_file)
    if len(texts) < options.texts + _TEST_TEXTS:
        raise SystemExit(f"{options.texts_file} has only {len(texts)} texts, {_TEST_TEXTS} of them for tests")
    rounding, test = texts[: options.texts], texts[options.texts : options.texts + _TEST_TEXTS]
    encoder = octavo.load(options.model, device=options.device)
    recipe = replace(octavo.recipe(options.recipe), passes=(AdaRound(iterations=options.iterations),))
    nearest = octavo.quantize(encoder, octavo.recipe(options.nearest), rounding)
    started = time.perf_counter()
    rounded = octavo.quantize(encoder, recipe, rounding)
    seconds = time.perf_counter() - started
    before, after = (compare(model, encoder, test).fidelity for model in (nearest, rounded))
    assert before is not None and after is not None
    gap = [1 - (result.cosine.mean if result.cosine else 0.0) for result in (before, after)]
    return {
        "model": options.model,
        "device": options.device,
        "texts": options.texts,
        "iterations": options.iterations,
        "threads": torch.get_num_threads(),
        "seconds": seconds,
        "nearest": before.to_dict(),
        "adaround": after.to_dict(),
        "gap_closed": 1 - gap[1] / gap[0],
        "versions": versions(),
    }


def main() -> None:
    """Measure and write a line, or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="demo:minilm")
    parser.add_argument("--recipe", default="w4a32-adaround")
    parser.add_argument("--nearest", default="w4a32", help="the same grid, rounded to nearest")
    parser.add_argument("--texts", type=int, default=256)
    parser.add_argument("--texts-file", default=str(_DEMO_TEXTS))
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    result = measure(options)
    if options.json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
        return
    sys.stdout.write(
        f"{result['iterations']} iterations, {result['texts']} texts, {result['device']}: "
        f"{result['seconds']:.0f} s; cosine {result['nearest']['cosine']['mean']:.4f} to nearest, "
        f"{result['adaround']['cosine']['mean']:.4f} with AdaRound, {result['gap_closed']:.0%} of the gap\n"
    )


if __name__ == "__main__":
    main()
