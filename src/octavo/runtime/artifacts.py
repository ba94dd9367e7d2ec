"""Artifacts: files opened in a backend, and models in torch, simulated ones among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelError
from octavo.runtime.backends import BACKENDS, DEFAULT, Backend, find_backend
from octavo.runtime.backends.backend import wall_time
from octavo.runtime.backends.runner import Arrays, Runner

if TYPE_CHECKING:
    from octavo.graph.encoder import Encoder

TORCH = "torch"
"""What runs a model that is not a file of a backend."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Artifact:
    """One thing to measure.

    Arguments:
        name: how it is called in tables, `minilm-int8.onnx (openvino)`; `name_apart` makes names unique.
        kind: `float`, `integer`, or `simulated`: rounded floats, whose latency says nothing.
        backend: the name of what runs it, `torch` for models that are not files of a backend.
        size: bytes of its weights on disk, None if they are not on this disk.
        source: what was opened: the file, or the model as `octavo.load` takes it.
        time: how one run is timed.
        encoder: the captured model, None for a file.
    """

    name: str
    kind: str
    backend: str
    size: int | None
    run: Runner
    source: str = ""
    time: Callable[[Runner, Arrays], float] = wall_time
    encoder: Encoder | None = None


def open_onnx(
    path: str | Path, backend: str = DEFAULT, threads: int | None = None, *, exact: bool = False
) -> Runner:
    """Open an ONNX file, or another one that the backend reads, for running.

    Arguments:
        backend: `onnxruntime` or `openvino`.
        threads: how many cores to use; the backend's choice if left out.
        exact: compute what the file says: left to itself, ONNX Runtime rounds the activations of weights-only
            files to 8 bits, for speed.
    """
    return find_backend(backend).open(path, threads, exact=exact)


def open_artifacts(
    given: str, backends: Sequence[str] = (DEFAULT,), threads: int | None = None
) -> list[Artifact]:
    """Open a model as `octavo.load` takes it, or a file in every backend that reads it.

    Arguments:
        given: a model, a file, or a file and the one backend to run it in, `FILE@openvino`.
        backends: where files run, as far as these read them; a file that none of them reads runs in the
            first backend of the table that does.
    """
    path, named = split_backend(given)
    able = [backend.name for backend in BACKENDS.values() if path.endswith(backend.endings)]
    if named and named not in able:
        endings = " or ".join(find_backend(named).endings)
        raise ModelError(f"{given}: only files that end in {endings} run in {named}; export the model first")
    if not able:
        return [_torch_artifact(given)]
    asked = [named] if named else [find_backend(name).name for name in backends]
    chosen = [name for name in asked if name in able] or able[:1]
    return [_file_artifact(Path(path), BACKENDS[name], threads) for name in chosen]


def open_artifact(given: str, backend: str = DEFAULT, threads: int | None = None) -> Artifact:
    """Open one model or file, as `open_artifacts` does."""
    return open_artifacts(given, (backend,), threads)[0]


def name_apart(artifacts: Sequence[Artifact]) -> list[Artifact]:
    """Give artifacts of one name as much of their paths as tells them apart; a repeated one gets a number."""
    named = list(artifacts)
    for depth in range(2, max((len(Path(a.source).parts) for a in artifacts), default=0) + 1):
        counts = Counter(name for name, _ in {(artifact.name, artifact.source) for artifact in named})
        named = [_longer_name(a, depth) if counts[a.name] > 1 else a for a in named]
    seen: Counter[str] = Counter()
    for index, artifact in enumerate(named):
        seen[artifact.name] += 1
        if seen[artifact.name] > 1:
            named[index] = replace(artifact, name=f"{artifact.name} #{seen[artifact.name]}")
    return named


def _longer_name(artifact: Artifact, depth: int) -> Artifact:
    if artifact.backend == TORCH:
        return artifact
    path = Path(*Path(artifact.source).parts[-depth:])
    return replace(artifact, name=f"{path} ({artifact.backend})")


def is_file(given: str) -> bool:
    """Return whether what was given is a file of some backend, and not a model as `octavo.load` takes it."""
    return any(given.endswith(backend.endings) for backend in BACKENDS.values())


def split_backend(given: str) -> tuple[str, str]:
    """Return the file and the backend of `FILE@openvino`; without a backend, all of it and ""."""
    path, mark, named = given.rpartition("@")
    return (path, named) if mark and named in BACKENDS else (given, "")


def _file_artifact(path: Path, backend: Backend, threads: int | None) -> Artifact:
    return Artifact(
        name=f"{path.name} ({backend.name})",
        run=backend.open(path, threads),
        kind="integer" if backend.holds_integers(path) else "float",
        backend=backend.name,
        size=backend.size(path),
        source=str(path),
        time=backend.time,
    )


def _torch_artifact(given: str) -> Artifact:
    # a process that only runs files does without torch
    from octavo.graph import QuantizedEncoder
    from octavo.graph.capture.source import locate
    from octavo.methods import load

    encoder = load(given)
    folder = Path(locate(given))
    return Artifact(
        name=given,
        kind="simulated" if isinstance(encoder, QuantizedEncoder) else "float",
        backend=TORCH,
        size=sum(file.stat().st_size for file in folder.glob("*.safetensors")) if folder.is_dir() else None,
        run=torch_runner(encoder),
        source=given,
        encoder=encoder,
    )


def torch_runner(encoder: Encoder) -> Runner:
    """Return a function that runs a captured model on arrays."""
    import torch

    def run(batch: Arrays) -> dict[str, NDArray[Any]]:
        tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in batch.items()}
        return {name: tensor.cpu().numpy() for name, tensor in encoder(tensors).items()}

    return run
