"""A step of quantization-aware training (W8A8, every site, batch 32 x 128) against the FP32 step.

    python benchmarks/qat_step.py                                              # CPU
    python benchmarks/qat_step.py --device cuda --graphs --steps 20            # GPU, as `octavo qat` trains
    python benchmarks/qat_step.py --device cuda --graphs --compile --steps 20  # as `octavo qat --compile`
    python benchmarks/qat_step.py --device cuda --compile --steps 20           # a loop of your own

Both steps are forward, backward and Adam with dropout as in training; they are timed in turns, so that a busy
machine slows both alike, and the ratio is the median over rounds. Peak memory on a GPU is the allocator's; on
the CPU it is what autograd keeps between forward and backward plus parameters, gradients and moments.
Goals: at most 1.5 x on a GPU under torch.compile, 1.7 x on two cores, 1.5 x the memory.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from output import add_options, report
from torch import Tensor, nn

from octavo.graph import Encoder
from octavo.methods import load
from octavo.methods.training.dropout import set_dropout
from octavo.methods.training.finetuning import own_copy
from octavo.methods.training.labelled import Labelled
from octavo.methods.training.quantized import prepare
from octavo.methods.training.step import RecordedStep, loss_of
from octavo.numerics.kernels import fast_matmul
from octavo.spec.presets import recipe
from octavo.versions import versions

TEXTS = ["The cat sat on the mat.", "Prices rose by three per cent.", "A short text, and then a longer one."]


@dataclass
class Candidate:
    name: str
    module: nn.Module
    step: Callable[[], Tensor]
    inputs: tuple[Tensor, ...]
    kept: int = 0


def candidate(
    name: str, encoder: Encoder, inputs: tuple[Tensor, ...], labels: Tensor, mode: str | None, graphs: bool
) -> Candidate:
    module = encoder.graph.train()
    run = module if mode is None else torch.compile(module, mode=mode)
    trained = [p for p in module.parameters() if p.requires_grad]
    rate = torch.tensor(1e-6, device=labels.device) if graphs else 1e-6
    optimizer = torch.optim.Adam(trained, lr=rate, fused=True, capturable=graphs)
    if graphs:
        data = Labelled(inputs=inputs, lengths=torch.full((len(labels),), inputs[0].shape[1]), labels=labels)
        recorded = RecordedStep(run, optimizer, data, trained, 1.0)
        rows = torch.arange(len(labels), device=labels.device)
        return Candidate(name, module, lambda: recorded(rows, inputs[0].shape[1]), inputs)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(run(*inputs)[0], labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Candidate(name, module, step, inputs)


def bytes_kept(candidate: Candidate) -> int:
    """Bytes that autograd keeps for the backward pass, plus parameters, gradients and moments."""
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = candidate.module(*candidate.inputs)[0].sum()
    owned = {
        p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in candidate.module.parameters()
    }
    del result
    activations = sum(size for place, size in seen.items() if place not in owned)
    return activations + 4 * sum(owned.values())


def measure(
    candidates: list[Candidate], rounds: int, steps: int, device: torch.device
) -> dict[str, list[float]]:
    sync = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    times: dict[str, list[float]] = {each.name: [] for each in candidates}
    for each in candidates:
        for _ in range(3):
            each.step()
    for _ in range(rounds):
        for each in candidates:
            sync()
            start = time.perf_counter()
            for _ in range(steps):
                each.step()
            sync()
            times[each.name].append((time.perf_counter() - start) / steps * 1000)
    return times


def gpu_peak(each: Candidate, device: torch.device) -> int:
    """Peak of the first steps, in which moments come to be and steps are recorded, plus parameters."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    for _ in range(4):
        each.step()
    torch.cuda.synchronize()
    own = sum(p.numel() * p.element_size() for p in each.module.parameters())
    return torch.cuda.max_memory_allocated(device) - before + own


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="demo:minilm")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="run both through torch.compile")
    parser.add_argument("--mode", default="default", help="torch.compile's: default or reduce-overhead")
    parser.add_argument("--graphs", action="store_true", help="record whole steps and replay them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--shape", type=int, nargs=2, default=(32, 128))
    parser.add_argument("--recipe", default="w8a8-qat")
    add_options(parser)
    options = parser.parse_args()
    device = torch.device(options.device)
    encoder = load(options.model, head="sequence-classification", labels=2, device=options.device)
    floating = own_copy(encoder)
    quantized = prepare(encoder, recipe(options.recipe), calibration=TEXTS)
    for each in (floating, quantized):
        set_dropout(each)
    torch.manual_seed(0)
    rows, length = options.shape
    ids = torch.randint(1000, 20000, (rows, length), device=device)
    values = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": torch.zeros_like(ids),
    }
    inputs = tuple(values[name] for name in encoder.inputs)
    labels = torch.randint(0, 2, (rows,), device=device)
    mode = options.mode if options.compile else None
    with fast_matmul():
        pair = [
            candidate("fp32", floating, inputs, labels, mode, options.graphs),
            candidate(options.recipe, quantized, inputs, labels, mode, options.graphs),
        ]
        peak = gpu_peak if device.type == "cuda" else lambda each, _: bytes_kept(each)
        memory = {each.name: peak(each, device) for each in pair}
        times = measure(pair, options.rounds, options.steps, device)
    ratios = [second / first for first, second in zip(times["fp32"], times[options.recipe], strict=True)]
    result = {
        "sites": len(encoder.activation_sites),
        "shape": list(options.shape),
        "compiled": mode,
        "graphs": options.graphs,
        "milliseconds": {name: round(statistics.median(values), 2) for name, values in times.items()},
        "ratio": round(statistics.median(ratios), 3),
        "mebibytes": {name: value >> 20 for name, value in memory.items()},
        "memory_ratio": round(memory[options.recipe] / memory["fp32"], 3),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "versions": versions(),
    }
    report(result, options.output)


if __name__ == "__main__":
    main()
