"""Importing Octavo and asking for help stay light: nothing optional or slow is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
HEAVY = (
    "torch",
    "transformers",
    "matplotlib",
    "onnx",
    "onnxruntime",
    "openvino",
    "datasets",
    "ray",
    "sklearn",
    "scipy",
)
HELP_SECONDS = 10
"""Generous, for busy machines; without torch it takes a fraction of a second."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, env=environment
    )


def loaded_after(statement: str) -> list[str]:
    """Return the heavy packages that a fresh interpreter holds after one statement."""
    code = f"import sys\n{statement}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    result = run("-c", code)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_import_octavo_loads_nothing_heavy() -> None:
    assert loaded_after("import octavo") == []


def test_the_probe_finds_what_is_loaded() -> None:
    assert "scipy" in loaded_after("import scipy")


def test_help_works_quickly() -> None:
    started = time.perf_counter()
    result = run("-c", "import sys; from octavo.cli import main; sys.argv = ['octavo', '--help']; main()")
    assert result.returncode == 0, result.stderr
    assert "quantize" in result.stdout
    assert time.perf_counter() - started < HELP_SECONDS


def test_help_loads_nothing_heavy() -> None:
    assert loaded_after("import octavo.cli") == []
