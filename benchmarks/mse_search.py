"""Compare the MSE range search with an exhaustive one on a weight of a BERT-base feed-forward layer.

    python benchmarks/mse_search.py [--runs 7] [--threads 1] [--json]

The exhaustive search quantizes the weight itself with each of 100 symmetric ranges. Runs of the two are
interleaved, so that both see the same machine, and the medians are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from octavo.numerics import Range, affine_from_range, fake_quantize, mse_range

CANDIDATES = 100
ONE_GROUP = torch.zeros(1, dtype=torch.int64)


def weight() -> Tensor:
    """Return a gaussian (768, 3072) with 200 outliers of up to some twelve times its spread, seed 0."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(768, 3072, generator=generator) * 0.04
    x.view(-1)[torch.randperm(x.numel(), generator=generator)[:200]] *= 12
    return x


def squared_error(x: Tensor, found: Range, bits: int) -> float:
    """Return the mean squared error of `x` quantized with a symmetric range."""
    grid = affine_from_range(*found, bits, symmetric=True)
    y = fake_quantize(x, grid.scale, grid.zero_point, grid.low, grid.high)
    return y.sub_(x).square_().mean().item()


def exhaustive_search(x: Tensor, bits: int) -> Range:
    """Return the best of 100 evenly spaced symmetric ranges."""
    reach = x.abs().max()
    ranges = [(-reach * k / CANDIDATES, reach * k / CANDIDATES) for k in range(1, CANDIDATES + 1)]
    return min(ranges, key=lambda found: squared_error(x, found, bits))


def histogram_search(x: Tensor, bits: int) -> Range:
    """Return the range that Octavo finds."""
    return mse_range(x.view(1, -1), ONE_GROUP, bits, symmetric=True, candidates=CANDIDATES)


def seconds(search: Callable[[Tensor, int], Range], x: Tensor, bits: int) -> float:
    """Return how long one search takes."""
    start = time.perf_counter()
    search(x, bits)
    return time.perf_counter() - start


def compare(x: Tensor, bits: int, runs: int) -> dict[str, float]:
    """Return the ratios of error (ours to exhaustive) and of speed (exhaustive to ours) for one bit-width."""
    exhaustive, ours = exhaustive_search(x, bits), histogram_search(x, bits)
    pairs = [(seconds(exhaustive_search, x, bits), seconds(histogram_search, x, bits)) for _ in range(runs)]
    slow, fast = (statistics.median(times) for times in zip(*pairs, strict=True))
    return {
        "bits": bits,
        "error_ratio": squared_error(x.double(), ours, bits) / squared_error(x.double(), exhaustive, bits),
        "speed_ratio": slow / fast,
        "exhaustive_ms": slow * 1e3,
        "octavo_ms": fast * 1e3,
    }


def main() -> None:
    """Measure 4 and 8 bits and write a table, or JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = [compare(weight(), bits, options.runs) for bits in (4, 8)]
    if options.json:
        setup = {"torch": torch.__version__, "threads": options.threads, "runs": options.runs}
        sys.stdout.write(json.dumps({"setup": setup, "results": results}, indent=2) + "\n")
        return
    sys.stdout.write("bits  error ratio  speed ratio  exhaustive ms  octavo ms\n")
    for r in results:
        row = f"{r['bits']:4}  {r['error_ratio']:11.4f}  {r['speed_ratio']:11.1f}"
        sys.stdout.write(f"{row}  {r['exhaustive_ms']:13.1f}  {r['octavo_ms']:9.1f}\n")


if __name__ == "__main__":
    main()
