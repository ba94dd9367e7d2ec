"""What simulated quantization costs: a `full` W8A8 forward against the FP32 forward of the same graph.

    python benchmarks/simulate.py [--model FOLDER] [--device cuda] [--compile] [--json]

Both graphs are run the same way, on one random batch of 32 texts of 128 tokens. Runs are interleaved, so that
both see the same machine, and the medians are compared. These are timings of a simulation, not of integer
arithmetic.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

import octavo
from octavo.graph import Encoder
from octavo.versions import versions

Forward = Callable[..., tuple[Tensor, ...]]


def random_batch(encoder: Encoder, rows: int, length: int) -> dict[str, Tensor]:
    """Token ids (rows, length) without padding, seed 0."""
    generator = torch.Generator().manual_seed(0)
    most = int(getattr(encoder.config, "vocab_size", 1000))
    ids = torch.randint(min(1000, most // 2), most, (rows, length), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def prepare(graph: fx.GraphModule, compiled: bool) -> Forward:
    """The graph itself, or what the compiler makes of it."""
    return torch.compile(graph) if compiled else graph


def seconds(forward: Forward, arguments: Sequence[Tensor]) -> float:
    """How long one forward pass takes, the device's work included."""
    start = time.perf_counter()
    forward(*arguments)
    if arguments[0].is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Quantize the model by `w8a8`, run both graphs in turn, and return what was measured on what."""
    encoder = octavo.load(options.model, device=options.device)
    batch = random_batch(encoder, options.batch, options.length)
    model = octavo.quantize(encoder, octavo.recipe(options.recipe), calibration=[batch])
    arguments = encoder.arguments(batch)
    forwards = [prepare(graph, options.compile) for graph in (encoder.graph, model.graph)]
    with torch.inference_mode():
        for forward in forwards * options.warmup:
            seconds(forward, arguments)
        times = [[seconds(forward, arguments) for forward in forwards] for _ in range(options.runs)]
    plain, simulated = (statistics.median(column) for column in zip(*times, strict=True))
    return {
        "ratio": simulated / plain,
        "fp32_ms": plain * 1e3,
        "simulated_ms": simulated * 1e3,
        "ratio_of_each_run": [later / first for first, later in times],
        "settings": {
            name: str(value) if isinstance(value, Path) else value for name, value in vars(options).items()
        },
        "activation_quantizers": sum(q.site.kind == "activation" for q in model.quantizers.values()),
        "versions": versions(),
        "hardware": hardware(encoder.device),
    }


def hardware(device: torch.device) -> dict[str, Any]:
    """The processor, how many threads torch uses of how many, and the GPU."""
    return {
        "processor": _processor(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
    }


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.is_file() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="demo:minilm", help="a Hugging Face folder or demo:minilm")
    parser.add_argument("--recipe", default="w8a8")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--compile", action="store_true", help="run both through torch.compile")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and write a line, or JSON."""
    warnings.simplefilter("ignore", DeprecationWarning)
    options = parse()
    result = measure(options)
    if options.json:
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
        return
    machine = result["hardware"]["gpu"] or result["hardware"]["processor"]
    sys.stdout.write(
        f"simulated {options.recipe} / FP32 = {result['ratio']:.2f}  "
        f"({result['simulated_ms']:.1f} / {result['fp32_ms']:.1f} ms, "
        f"{options.batch} x {options.length}, {'compiled' if options.compile else 'eager'}, {machine})\n"
    )


if __name__ == "__main__":
    main()
