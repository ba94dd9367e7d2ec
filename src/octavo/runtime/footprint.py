"""Peak memory of an artifact, measured in a process that does nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from octavo.errors import ModelError


def peak_memory(given: str, runtime: str, shape: tuple[int, int], threads: int) -> float:
    """Megabytes that a fresh process needs at most to load an artifact and run one batch of `shape`."""
    request = json.dumps({"given": given, "runtime": runtime, "shape": shape, "threads": threads})
    done = subprocess.run(
        [sys.executable, "-m", "octavo.runtime.footprint", request],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        raise ModelError(
            f"the memory of {given} could not be measured: {lines[-1] if lines else 'the process died'}"
        )
    return float(done.stdout.strip().splitlines()[-1])


def _measure(request: str) -> float:
    """Run what was asked for; peak resident memory of this process in megabytes."""
    from octavo.runtime.session import open_onnx

    asked = json.loads(request)
    if asked["runtime"] == "torch":
        import torch

        from octavo.runtime.artifacts import open_artifact

        torch.set_num_threads(asked["threads"])
        run = open_artifact(asked["given"]).run
    else:
        run = open_onnx(asked["given"], asked["runtime"], asked["threads"])
    import numpy as np

    ids = np.full(asked["shape"], 5, np.int64)
    run({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
    return _peak()


def _peak() -> float:
    # Linux hands ru_maxrss on from the process that forked this one; the mark below begins anew at exec
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1e3
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    sys.stdout.write(f"{_measure(sys.argv[1])}\n")
