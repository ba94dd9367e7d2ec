"""Measure what processors without VNNI make of an int8 file, on an emulated one.

    python benchmarks/no_vnni.py [--cpu Haswell] [--texts 32] [-o results/deploy/no-vnni.json]

x86 processors without VNNI add two products of bytes in 16 bits, which saturate. The demo model is exported
by `int8` for three targets and with `reduce_range`; ONNX Runtime runs each here and in `qemu-x86_64 -cpu
CPU` (Debian: `apt-get install qemu-user`), whose arithmetic is that of the processor it emulates. Both run
the same file on the same texts; cosines are of mean-pooled embeddings.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from output import add_options, report

import octavo
from octavo.tasks.demo import split_demo_texts
from octavo.versions import versions

# Run by an emulated Python, which takes half a minute to import ONNX Runtime alone.
_CHILD = """
import sys
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
for file in sys.argv[2:]:
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    batch = np.load(sys.argv[1])
    inputs = {each.name: batch[each.name] for each in session.get_inputs()}
    np.save(file + ".npy", session.run(None, inputs)[0])
"""


_FILES: dict[str, dict[str, Any]] = {
    "--target vnni": {},
    "--target avx2": {"target": "avx2"},
    "--target any": {"target": "any"},
    "--reduce-range": {"reduce_range": True},
}


def measure(cpu: str, texts: int) -> dict[str, Any]:
    """Export the files, run them here and emulated, and compare the embeddings."""
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        raise SystemExit("qemu-x86_64 is not installed; on Debian: apt-get install qemu-user")
    calibration, others = split_demo_texts()
    encoder = octavo.load("demo:minilm")
    model = octavo.quantize(encoder, octavo.recipe("int8"), calibration)
    _, batch = next(iter(encoder.batches(others[:texts], texts)))
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{number}.onnx" for number, name in enumerate(_FILES)}
        for name, file in files.items():
            octavo.export(model, file, **_FILES[name])
        np.savez(Path(folder) / "batch.npz", **{name: tensor.numpy() for name, tensor in batch.items()})
        child = [sys.executable, "-c", _CHILD, str(Path(folder) / "batch.npz"), *map(str, files.values())]
        mask = batch["attention_mask"].numpy()[..., None]
        native = _run(child, files, mask)
        emulated = _run([emulator, "-cpu", cpu, *child], files, mask)
    exact = _pooled(encoder(batch)["last_hidden_state"].numpy(), mask)
    return {
        "model": "demo:minilm",
        "recipe": "int8",
        "texts": texts,
        "native": {"vnni": "vnni" in Path("/proc/cpuinfo").read_text()},
        "emulated": {"cpu": cpu, "emulator": subprocess.getoutput(f"{emulator} --version").splitlines()[0]},
        "files": {
            name: {
                "cosine to FP32, native": _cosines(native[name], exact),
                "cosine to FP32, emulated": _cosines(emulated[name], exact),
                "cosine of emulated to native": _cosines(emulated[name], native[name]),
            }
            for name in files
        },
        "versions": {**versions(), "onnxruntime": _version("onnxruntime")},
    }


def _run(command: list[str], files: dict[str, Path], mask: NDArray[Any]) -> dict[str, NDArray[Any]]:
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return {name: _pooled(np.load(f"{file}.npy"), mask) for name, file in files.items()}


def _pooled(hidden: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
    mean = (hidden.astype(np.float64) * mask).sum(1) / mask.sum(1)
    return np.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True))


def _cosines(first: NDArray[Any], second: NDArray[Any]) -> dict[str, float]:
    found = (first * second).sum(1)
    return {"mean": float(found.mean()), "worst": float(found.min())}


def _version(package: str) -> str:
    from importlib.metadata import version

    return version(package)


def main() -> None:
    """Measure and write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cpu", default="Haswell", help="a model that qemu knows")
    parser.add_argument("--texts", type=int, default=32)
    add_options(parser)
    options = parser.parse_args()
    report(measure(options.cpu, options.texts), options.output)


if __name__ == "__main__":
    main()
