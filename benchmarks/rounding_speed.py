"""How long AdaRound and GPTQ take for one weight, with the kernels and without.

    python benchmarks/rounding_speed.py                                       # CPU: without, there are none
    python benchmarks/rounding_speed.py --device cuda --iterations 1000       # GPU

The weights have the sizes of a base encoder: 768 outputs, and 768 or 3072 inputs. Both ways run in turns, so
that a busy machine slows both alike; seconds are medians over rounds, after a run that builds kernels. Losses
are shares of that of rounding to nearest, both less their constant.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from unittest import mock

import torch
from output import add_options, report
from torch import Tensor

from octavo.numerics.adaround import Rounded, Schedule, adaround
from octavo.numerics.gptq import gptq
from octavo.numerics.kernels import has_kernels
from octavo.versions import versions

Run = Callable[[], Rounded]


def runs_of(outputs: int, inputs: int, options: argparse.Namespace) -> dict[str, Run]:
    """Return what rounds a weight to 4 bits, a range for each row, its inputs correlated."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(inputs, inputs, generator=generator) / inputs**0.5
    x = torch.randn(4 * inputs, inputs, generator=generator) @ mix
    x_hat = x + 0.02 * torch.randn(x.shape, generator=generator)
    weight = torch.randn(outputs, inputs, generator=generator)
    moment, cross = x_hat.T @ x_hat / len(x), (x_hat - x).T @ x_hat / len(x)
    w, a, c = (each.to(options.device) for each in (weight, moment, weight @ cross))
    scale, bounds = w.abs().amax(1, keepdim=True) / 7, (w.new_tensor(-8), w.new_tensor(7))
    schedule = Schedule(
        iterations=options.iterations,
        learning_rate=10 / options.iterations,
        weight=0.01,
        warmup=0.2,
        beta=(20.0, 2.0),
    )
    return {
        "adaround, no flips": lambda: adaround(w, scale, bounds, a, c, schedule, flips=False),
        "adaround": lambda: adaround(w, scale, bounds, a, c, schedule),
        "gptq": lambda: gptq(w, scale, bounds, a.double(), c),
        "gptq, 2 sweeps": lambda: gptq(w, scale, bounds, a.double(), c, sweeps=2),
    }


def timed(run: Run, kernels: bool, device: torch.device) -> tuple[float, Rounded]:
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    with ExitStack() as stack:
        for module in ("adaround", "gptq"):
            stack.enter_context(mock.patch(f"octavo.numerics.{module}.has_kernels", lambda _: kernels))
        sync()
        start = time.perf_counter()
        rounded = run()
        sync()
        return time.perf_counter() - start, rounded


def measure(
    run: Run, ways: dict[str, bool], rounds: int, device: torch.device
) -> dict[str, dict[str, float]]:
    """Return the seconds and the loss of each way."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    losses: dict[str, float] = {}
    for turn in range(rounds + 1):
        for name, kernels in ways.items():
            took, rounded = timed(run, kernels, device)
            losses[name] = rounded.loss / rounded.nearest_loss
            if turn > 0:
                seconds[name].append(took)
    return {
        name: {"seconds": round(statistics.median(seconds[name]), 4), "loss": round(losses[name], 5)}
        for name in ways
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--iterations", type=int, default=1000, help="of AdaRound")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inputs", type=int, nargs="+", default=(768, 3072))
    parser.add_argument("--outputs", type=int, default=768)
    add_options(parser)
    options = parser.parse_args()
    device = torch.device(options.device)
    probe: Tensor = torch.empty(0, device=device)
    ways = {"without": False, "kernels": True} if has_kernels(probe) else {"without": False}
    found = {
        f"{options.outputs} x {inputs}": {
            name: measure(run, ways, options.rounds, device)
            for name, run in runs_of(options.outputs, inputs, options).items()
        }
        for inputs in options.inputs
    }
    result = {
        "iterations": options.iterations,
        "weights": found,
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "versions": versions(),
    }
    report(result, options.output)


if __name__ == "__main__":
    main()
