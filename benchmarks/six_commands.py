"""From a CSV of five classes to a file that runs in integers: six commands, timed as a user waits for them.

    python benchmarks/six_commands.py MODEL --glue GLUE_DIR --work DIR [-o FILE]

`own_data.py classes` writes train.csv and test.csv into DIR; then finetune, quantize, evaluate, export,
evaluate of the file, bench, as in docs/your-data.md. A model that DIR has been fine-tuned into already is
kept, so that the rest can be timed alone. Goal: each under a minute on the demo model, fine-tuning aside.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from output import add_options, report

from octavo.versions import versions

COLUMNS = "--data {} --text text --label source"
COMMANDS = {
    "finetune": "finetune {model} "
    + COLUMNS.format("train.csv")
    + " -o topics --learning-rate 3e-4 --batch-size 16 --epochs 2",
    "quantize": "quantize topics --recipe int8 --calibration train.csv:text -o topics-int8",
    "evaluate": "evaluate topics-int8 --against topics " + COLUMNS.format("test.csv"),
    "export": "export topics-int8 -o topics-int8.onnx",
    "evaluate the file": "evaluate topics-int8.onnx --tokenizer topics-int8 " + COLUMNS.format("test.csv"),
    "bench": "bench topics topics-int8.onnx --texts test.csv:text " + COLUMNS.format("test.csv"),
}
KEPT = {"evaluate": ("metrics", "reference", "agreement"), "evaluate the file": ("metrics",)}
"""What is recorded of the document that a command prints, beside its time."""


def run(command: str, folder: Path) -> tuple[float, dict[str, Any]]:
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "octavo", *command.split(), "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise SystemExit(f"octavo {command}\n{done.stderr}")
    return seconds, json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", default="demo:minilm")
    parser.add_argument("--glue", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path, help="folder of the data and of what comes of it")
    parser.add_argument("--only", help="stop after this command")
    add_options(parser)
    options = parser.parse_args()
    if not options.work.exists():
        make = [sys.executable, str(Path(__file__).parent / "own_data.py"), "classes"]
        subprocess.run([*make, "--glue", str(options.glue), "-o", str(options.work)], check=True)
    rows: dict[str, Any] = {}
    for name, command in COMMANDS.items():
        if name == "finetune" and (options.work / "topics").exists():
            continue
        command = command.format(model=options.model)
        force = " --force" if " -o " in command else ""
        seconds, document = run(command + force, options.work)
        rows[name] = {"command": f"octavo {command}", "seconds": round(seconds, 1)}
        rows[name] |= {key: document[key] for key in KEPT.get(name, ())}
        print(name, f"{seconds:.1f} s", file=sys.stderr, flush=True)
        if name == options.only:
            break
    result = {
        "command": f"python benchmarks/six_commands.py {Path(options.model).name} --glue GLUE_DIR --work DIR",
        "hardware": f"{platform.machine()} CPU, {os.cpu_count()} cores",
        "versions": versions(),
        "commands": rows,
    }
    report(result, options.output)


if __name__ == "__main__":
    main()
