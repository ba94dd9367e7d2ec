"""Engines: where the cells of a grid run. In this process, or in several processes of this machine."""

from __future__ import annotations

import math
import multiprocessing
import os
import time
import traceback
from collections import deque
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from octavo.errors import OctavoError
from octavo.experiments.cell import Cell
from octavo.experiments.runner import CellRunner, RunConfiguration, free_memory
from octavo.methods.training.loop import TimeOverError

Outcome = tuple[Cell, float | None, str | None]
"""A cell with its score, or with what went wrong."""

OUT_OF_MEMORY = "OutOfMemoryError"
"""What the failure of a cell begins with that found no memory on its GPU."""

_LONGEST_WAIT = 3600.0  # seconds: `wait` of several pipes takes no endless time


class Engine(Protocol):
    """Takes cells and gives them back finished, in any order."""

    @property
    def free(self) -> int:
        """Return how many more cells it takes now."""

    def submit(self, cell: Cell, start: Cell | None) -> None:
        """Begin a cell."""

    def wait(self, seconds: float) -> list[Outcome]:
        """Return cells that finished; none if the time is over first, which a cell may be cut for."""

    def close(self) -> None:
        """Stop at once."""


def attempt(
    runner: CellRunner, cell: Cell, start: Cell | None, stop_at: float = math.inf
) -> tuple[float | None, str | None]:
    """Run a cell; any failure becomes a sentence, since the cells beside it go on."""
    try:
        return runner.run(cell, start, stop_at), None
    except TimeOverError:
        raise
    except OctavoError as error:
        failure = str(error)
    except Exception as error:  # a bug in one cell must not stop the others; its traceback is kept
        where = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
    free_memory()  # only here are the frames gone that held the model
    return None, failure


class InProcess:
    """Runs one cell after another in this process."""

    def __init__(self, configuration: RunConfiguration) -> None:
        self.runner = CellRunner(configuration)
        self._queue: deque[tuple[Cell, Cell | None]] = deque()

    @property
    def free(self) -> int:
        return 1 - len(self._queue)

    def submit(self, cell: Cell, start: Cell | None) -> None:
        self._queue.append((cell, start))

    def wait(self, seconds: float) -> list[Outcome]:
        cell, start = self._queue[0]
        try:
            outcome = attempt(self.runner, cell, start, time.monotonic() + seconds)
        except TimeOverError:
            return []
        self._queue.popleft()
        return [(cell, *outcome)]

    def close(self) -> None:
        self._queue.clear()


class _Worker:
    """A process with a pipe, and the cell it works on."""

    def __init__(self, configuration: RunConfiguration, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_serve, args=(other, configuration, threads), daemon=True)
        self.process.start()
        other.close()
        self.job: tuple[Cell, Cell | None] | None = None

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Workers:
    """Runs cells in several processes of this machine, which may share one GPU.

    A process that dies costs only its cell, which is tried once more in a new one.
    """

    def __init__(self, configuration: RunConfiguration, count: int) -> None:
        self.configuration = configuration
        self.threads = max(1, (os.cpu_count() or 1) // count)
        self.workers = [_Worker(configuration, self.threads) for _ in range(count)]
        self._retried: set[str] = set()

    @property
    def free(self) -> int:
        return sum(worker.job is None for worker in self.workers)

    def submit(self, cell: Cell, start: Cell | None) -> None:
        worker = next(worker for worker in self.workers if worker.job is None)
        try:
            worker.pipe.send((cell, start))
        except OSError:  # it died while it had nothing to do
            worker = self._renew(worker)
            worker.pipe.send((cell, start))
        worker.job = (cell, start)

    def wait(self, seconds: float) -> list[Outcome]:
        busy = {id(worker.pipe): worker for worker in self.workers if worker.job is not None}
        ready = wait([worker.pipe for worker in busy.values()], timeout=min(seconds, _LONGEST_WAIT))
        return [outcome for pipe in ready if (outcome := self._collect(busy[id(pipe)])) is not None]

    def _collect(self, worker: _Worker) -> Outcome | None:
        assert worker.job is not None
        cell, start = worker.job
        try:
            score, failure = worker.pipe.recv()
        except (EOFError, OSError):
            return self._replace(worker, cell, start)
        worker.job = None
        return cell, score, failure

    def _replace(self, worker: _Worker, cell: Cell, start: Cell | None) -> Outcome | None:
        self._renew(worker)
        if cell.path in self._retried:
            return cell, None, f"its process ended twice (exit code {worker.process.exitcode})"
        self._retried.add(cell.path)
        self.submit(cell, start)
        return None

    def _renew(self, worker: _Worker) -> _Worker:
        """Put a new process in the place of one that died."""
        worker.stop()
        new = self.workers[self.workers.index(worker)] = _Worker(self.configuration, self.threads)
        return new

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()


def _serve(pipe: Connection[Any, Any], configuration: RunConfiguration, threads: int) -> None:
    import torch

    torch.set_num_threads(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    runner = CellRunner(configuration)
    while True:
        try:
            cell, start = pipe.recv()
        except EOFError:
            return
        pipe.send(attempt(runner, cell, start))
