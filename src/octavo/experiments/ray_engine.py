"""The Ray engine: cells as tasks of a cluster, or of a Ray on this machine."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from octavo.errors import MissingExtraError, OctavoError
from octavo.experiments.cell import Cell
from octavo.experiments.engine import Outcome, attempt
from octavo.experiments.runner import CellRunner, RunConfiguration

_PATIENCE = 10.0  # seconds
_LONGEST_WAIT = 3600.0


class OnRay:
    """Runs cells as Ray tasks, here or on a cluster whose machines share the results folder and the data."""

    def __init__(
        self, configuration: RunConfiguration, count: int | None = None, address: str | None = None
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingExtraError("ray", "--engine ray") from error
        self.ray: Any = ray  # parts of Ray have no types
        try:
            _knock(address)
            ray.init(address=address, log_to_driver=False, **({} if address else _local(count)))
        except (OSError, ValueError, RuntimeError) as error:
            raise OctavoError(f"Ray cannot be reached at {address or 'this machine'}: {error}") from error
        resources: dict[str, float] = dict(self.ray.cluster_resources())
        self.slots = int(resources.get("CPU", 1))
        gpus = resources.get("GPU", 0)
        share: dict[str, Any] = {"num_gpus": gpus / self.slots} if gpus else {}
        # a worker that is killed costs only its cell: Ray tries it again elsewhere
        self.task = ray.remote(num_cpus=1, max_retries=2, **share)(_ray_cell)
        self.configuration = configuration
        self._running: dict[Any, Cell] = {}

    @property
    def free(self) -> int:
        return self.slots - len(self._running)

    def submit(self, cell: Cell, start: Cell | None) -> None:
        self._running[self.task.remote(self.configuration, cell, start)] = cell

    def wait(self, seconds: float) -> list[Outcome]:
        ready, _ = self.ray.wait(list(self._running), num_returns=1, timeout=min(seconds, _LONGEST_WAIT))
        return [self._collect(reference) for reference in ready]

    def _collect(self, reference: Any) -> Outcome:
        cell = self._running.pop(reference)
        try:
            score, failure = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            score, failure = None, f"its worker failed: {str(error).strip().splitlines()[-1]}"
        return cell, score, failure

    def close(self) -> None:
        self.ray.shutdown()


def _knock(address: str | None) -> None:
    """Fail within seconds where nobody listens: Ray itself tries for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()


def _local(count: int | None) -> dict[str, Any]:
    """Return options of a Ray of this machine alone, whose workers find the packages of this process."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return {"num_cpus": count, "runtime_env": {"env_vars": {"PYTHONPATH": paths}}, "include_dashboard": False}


_runners: dict[RunConfiguration, CellRunner] = {}  # of a Ray worker, which serves many cells


def _ray_cell(
    configuration: RunConfiguration, cell: Cell, start: Cell | None
) -> tuple[float | None, str | None]:
    if configuration not in _runners:
        _runners[configuration] = CellRunner(configuration)
    return attempt(_runners[configuration], cell, start)
