"""Peak memory of an artifact, measured in a process that does nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np

from octavo.errors import ModelError
from octavo.runtime.artifacts import TORCH, open_artifact
from octavo.runtime.backends import find_backend
from octavo.runtime.backends.backend import resident_megabytes


def peak_memory(source: str, backend: str, shape: tuple[int, int], threads: int) -> float:
    """Return the megabytes that a fresh process needs at most to load an artifact and run one batch.

    Arguments:
        source, backend: as in `Artifact`.
        shape: (batch, length).
    """
    request = json.dumps({"source": source, "backend": backend, "shape": shape, "threads": threads})
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
            f"the memory of {source} could not be measured: {lines[-1] if lines else 'the process died'}"
        )
    return float(done.stdout.strip().splitlines()[-1])


def _measure(source: str, backend: str, shape: tuple[int, int], threads: int) -> float:
    """Run one batch and return the peak memory of this process in megabytes."""
    if backend == TORCH:
        import torch

        torch.set_num_threads(threads)
        run, peak = open_artifact(source).run, resident_megabytes
    else:  # opened without a look at what is in the file, which would take memory as well
        opened = find_backend(backend)
        run, peak = opened.open(source, threads), opened.peak_megabytes
    ids = np.full(shape, 5, np.int64)
    run({"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
    return peak()


if __name__ == "__main__":
    sys.stdout.write(f"{_measure(**json.loads(sys.argv[1]))}\n")
