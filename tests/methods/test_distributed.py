from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[2]


def launch(processes: int, model: Path, output: Path) -> None:
    output.mkdir()
    runner = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-port", "29511"]
    command = [sys.executable, *(runner if processes > 1 else []), "-m", "tests.methods.distributed_worker"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, str(model), str(output)], check=True, cwd=ROOT, env=environment, timeout=300)


@pytest.mark.slow
def test_two_processes_end_with_the_parameters_of_one(
    tiny_bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    pytest.importorskip("accelerate")
    model = tiny_bert_folder()
    launch(1, model, tmp_path / "one")
    launch(2, model, tmp_path / "two")
    one = load_file(tmp_path / "one" / "rank-0.safetensors")
    first, second = (load_file(tmp_path / "two" / f"rank-{rank}.safetensors") for rank in (0, 1))
    for name, value in one.items():
        assert torch.equal(first[name], second[name]), name
        assert torch.allclose(first[name], value, atol=2e-4), name
