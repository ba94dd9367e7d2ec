"""What commands cost on one model, each in a process of its own: seconds, processor seconds and peak memory.

    python benchmarks/command_costs.py MODEL --glue GLUE_DIR [--peer PYTHON] [--rounds 2] [-o FILE]

`octavo quantize` by int8 with 64 sentences of STS-B's training set takes turns with NNCF's transformer preset
on the same sentences, if `--peer` names a Python that has nncf, openvino, torch and transformers. Both are
whole programs: start, model, capture (for NNCF OpenVINO's own conversion), quantization, saving. GPTQ is
`int8` with 4-bit weights (`w4a8`). Then export, evaluate, diagnose and bench, and, in this process, the
exact search for 8 groups of 3,072 dimensions.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from output import add_options, report
from recipes import CALIBRATION, TEXTS, column, spread

from octavo.numerics.partition import optimal_groups
from octavo.versions import versions

NNCF = Path(__file__).parent / "nncf_quantize.py"


def timed(command: Sequence[str | Path]) -> dict[str, Any]:
    """Run a command to its end and return what it took; its output is shown only if it fails."""
    with tempfile.TemporaryFile("w+") as output:
        start = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        printed = output.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{printed}")
    return {
        "seconds": round(seconds, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_gb": round(usage.ru_maxrss / 1e6, 2),
        "printed": printed,
    }


def in_turns(commands: dict[str, Sequence[str | Path]], rounds: int) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            cost = timed(command)
            lines = [line for line in cost.pop("printed").splitlines() if line.startswith('{"nncf_')]
            found[name].append(cost | (json.loads(lines[-1]) if lines else {}))
            print(name, found[name][-1], file=sys.stderr, flush=True)
    return found


def groups_seconds(dimensions: int = 3072, groups: int = 8, repeats: int = 5) -> float:
    generator = torch.Generator().manual_seed(0)
    low, high = torch.randn(2, dimensions, generator=generator).sort(dim=0).values
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        optimal_groups(low, high, groups)
        times.append(time.perf_counter() - start)
    return round(sorted(times)[repeats // 2], 4)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--glue", required=True, type=Path)
    parser.add_argument("--peer", help="a Python with nncf, openvino, torch and transformers")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", nargs="*", help="of quantize, gptq, commands, groups; default all")
    add_options(parser)
    options = parser.parse_args()
    result = {
        "model": Path(options.model).name,
        "calibration": CALIBRATION,
        "cores": os.cpu_count(),
        "versions": versions(),
        **(json.loads(Path(options.output).read_text()) if _exists(options.output) else {}),
    }
    wanted = options.only or ["quantize", "gptq", "commands", "groups"]
    with tempfile.TemporaryDirectory() as place:
        for name, value in measured(options, Path(place), wanted):
            result[name] = value
            report(result, options.output)


def _exists(output: str | None) -> bool:
    return output is not None and Path(output).exists()


def measured(options: argparse.Namespace, folder: Path, wanted: Sequence[str]) -> Any:
    octavo = [sys.executable, "-m", "octavo"]
    texts, others = folder / "texts.txt", folder / "others.txt"
    texts.write_text("\n".join(column(options.glue / "STS-B" / "train.tsv", 7)[:CALIBRATION]) + "\n")
    others.write_text("\n".join(spread(column(options.glue / "STS-B" / "dev.tsv", 7), TEXTS)) + "\n")
    saved, file = folder / "saved", folder / "model.onnx"

    def quantize(recipe: str, out: Path) -> list[str | Path]:
        given = ["quantize", options.model, "--recipe", recipe, "--calibration", texts, "-o", out]
        return [*octavo, *given, "--force"]

    if "quantize" in wanted:
        commands: dict[str, Sequence[str | Path]] = {"octavo quantize": quantize("int8", saved)}
        if options.peer:
            commands["nncf"] = [options.peer, NNCF, options.model, texts, folder / "nncf.xml"]
        yield "quantize", in_turns(commands, options.rounds)
    if "gptq" in wanted:
        yield "gptq", in_turns({"octavo quantize, w4a8": quantize("w4a8", folder / "w4a8")}, 1)
    if "commands" in wanted:
        if not saved.exists():
            timed(quantize("int8", saved))
        yield (
            "commands",
            in_turns(
                {
                    "export": [*octavo, "export", saved, "-o", file, "--force"],
                    "evaluate": [*octavo, "evaluate", saved, "--against", options.model, "--texts", others],
                    "bench": [*octavo, "bench", options.model, file, "--texts", others, "--no-memory"],
                    "diagnose": [
                        *octavo,
                        *("diagnose", options.model, "--texts", texts, "-o", folder / "report"),
                    ],
                },
                1,
            ),
        )
    if "groups" in wanted:
        yield "optimal_groups_3072_8_seconds", groups_seconds()


if __name__ == "__main__":
    main()
