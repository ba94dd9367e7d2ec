"""Benchmarks: latency, throughput, memory, size and fidelity of artifacts, side by side in one run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import DataError, ModelError
from octavo.fidelity import Quality
from octavo.progress import Progress, silent
from octavo.runtime.artifacts import Artifact, name_apart, open_artifacts
from octavo.runtime.backends import DEFAULT
from octavo.runtime.backends.runner import Arrays
from octavo.runtime.footprint import peak_memory
from octavo.runtime.quality import Reader, as_reader, find_reader, measure_quality
from octavo.versions import versions

SHAPES = ((1, 32), (1, 128), (32, 32), (32, 128))
"""(batch, length) of what is timed."""

_SECONDS = 2.0  # about how long each artifact runs at each shape, so that short runs are repeated more often
_FEWEST, _MOST = 5, 15
_TURN, _CALLS = 0.05, 20  # seconds of a turn: short runs are repeated within it, as they are in use
_PAUSE = 0.25  # seconds before a turn: the threads of the backend before it spin for a while


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long a batch takes, median and fastest, in milliseconds, and texts per second at the median."""

    batch: int
    length: int
    median_ms: float
    fastest_ms: float
    repeats: int
    texts_per_second: float


@dataclass(frozen=True, kw_only=True)
class Row:
    """All that was measured of one artifact; `kind` says whether its arithmetic is what one deploys."""

    name: str
    kind: str
    backend: str
    megabytes: float | None
    peak_megabytes: float | None
    timings: tuple[Timing, ...]
    quality: Quality | None
    score: float | None = None

    def at(self, batch: int, length: int) -> Timing:
        """Return the timing of one shape."""
        return next(timing for timing in self.timings if (timing.batch, timing.length) == (batch, length))


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """The rows of one run; fidelity is against the first."""

    rows: tuple[Row, ...]
    threads: int
    texts: int

    def to_dict(self) -> dict[str, Any]:
        """Return the benchmark for JSON."""
        rows = [
            asdict(row) | {"quality": None if row.quality is None else row.quality.to_dict()}
            for row in self.rows
        ]
        return asdict(self) | {"rows": rows, "versions": versions()}


def bench(
    models: Sequence[str],
    *,
    backends: Sequence[str] = (DEFAULT,),
    shapes: Sequence[tuple[int, int]] = SHAPES,
    texts: Sequence[str] = (),
    tokenizer: str | Path | None = None,
    threads: int = 2,
    seconds: float = _SECONDS,
    memory: bool = True,
    score: Callable[[Reader], float] | None = None,
    progress: Progress = silent,
) -> Benchmark:
    """Measure artifacts against each other, taking turns so that a busy machine slows all of them alike.

    Arguments:
        models: models as `octavo.load` takes them (a folder Octavo saved is *simulated*), or files.
        backends: what each file is run in, unless it is given as `FILE@openvino`.
        texts: to compare outputs with those of the first artifact; without them fidelity is left out.
        tokenizer: the folder or model whose tokenizer cuts the texts; by default that of the first model, or
            one that lies beside a file.
        threads: cores to use.
        memory: also run each artifact once in a process of its own and record its peak memory.
        score: a task's score of a model that reads texts, asked for each artifact.
    """
    import torch

    if not models:
        raise ModelError("nothing to measure; give at least one model or ONNX file")
    if any(batch < 1 or length < 2 for batch, length in shapes):
        raise DataError("a shape needs a batch of at least 1 and a length of at least 2")
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        artifacts = name_apart([a for given in models for a in open_artifacts(given, backends, threads)])
        reader = find_reader(artifacts, tokenizer) if texts else None  # before minutes are spent on timing
        scores = [
            None if score is None else score(as_reader(each, artifacts, tokenizer)) for each in artifacts
        ]
        timings = _time_all(artifacts, shapes, seconds, progress)
        qualities: Sequence[Quality | None] = [None] * len(artifacts)
        if reader is not None:
            qualities = measure_quality(artifacts, texts, reader)
    finally:
        torch.set_num_threads(before)
    largest = max(shapes)
    peaks = [peak_memory(a.source, a.backend, largest, threads) if memory else None for a in artifacts]
    rows = tuple(map(_row, artifacts, peaks, timings, qualities, scores))
    return Benchmark(rows=rows, threads=threads, texts=len(texts))


def _row(
    artifact: Artifact,
    peak: float | None,
    timings: list[Timing],
    quality: Quality | None,
    score: float | None,
) -> Row:
    return Row(
        name=artifact.name,
        kind=artifact.kind,
        backend=artifact.backend,
        megabytes=None if artifact.size is None else artifact.size / 1e6,
        peak_megabytes=peak,
        timings=tuple(timings),
        quality=quality,
        score=score,
    )


# -- time ----------------------------------------------------------------------------------------------------


def _time_all(
    artifacts: Sequence[Artifact], shapes: Sequence[tuple[int, int]], seconds: float, progress: Progress
) -> list[list[Timing]]:
    """Time every artifact at every shape; artifacts take turns within a shape."""
    timings: list[list[Timing]] = [[] for _ in artifacts]
    for done, (batch, length) in enumerate(shapes, start=1):
        tokens = sample(batch, length)
        paces = [max(min(_once(artifact, tokens) for _ in range(3)), 1e-6) for artifact in artifacts]
        calls = [int(min(max(_TURN / pace, 1), _CALLS)) for pace in paces]
        longest = max(pace * count for pace, count in zip(paces, calls, strict=True))
        repeats = int(min(max(seconds / longest, _FEWEST), _MOST))
        times = np.array(
            [[_turn(*each, tokens) for each in zip(artifacts, calls, strict=True)] for _ in range(repeats)]
        )
        for index, column in enumerate(times.T):
            timings[index].append(_timing(batch, length, column))
        progress(done, len(shapes))
    return timings


def _turn(artifact: Artifact, calls: int, tokens: Arrays) -> float:
    """Return the median of some runs in a row, short ones after one that finds caches and threads again."""
    time.sleep(_PAUSE)
    if calls > 1:
        artifact.run(tokens)
    return float(np.median([_once(artifact, tokens) for _ in range(calls)]))


def _once(artifact: Artifact, tokens: Arrays) -> float:
    return artifact.time(artifact.run, tokens)


def _timing(batch: int, length: int, seconds: NDArray[np.float64]) -> Timing:
    median = float(np.median(seconds))
    return Timing(
        batch=batch,
        length=length,
        median_ms=median * 1e3,
        fastest_ms=float(seconds.min()) * 1e3,
        repeats=len(seconds),
        texts_per_second=batch / median,
    )


def sample(batch: int, length: int) -> dict[str, NDArray[Any]]:
    """Return token ids without padding, small enough for any vocabulary."""
    ids = np.tile(np.arange(length, dtype=np.int64) % 16 + 4, (batch, 1))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
