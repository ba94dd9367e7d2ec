from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from octavo.errors import MissingExtraError, OctavoError
from octavo.experiments.grid import GridRun
from octavo.experiments.ray_engine import OnRay
from octavo.experiments.runner import RunConfiguration
from tests.experiments.test_engine import configuration as configuration
from tests.experiments.test_engine import small


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_local_ray_of_two_workers_survives_the_loss_of_one(configuration: RunConfiguration) -> None:
    ray = pytest.importorskip("ray")
    cells = small(configuration)
    engine = OnRay(configuration, count=2)
    victim = ray.get(ray.remote(lambda: os.getpid()).remote())
    threading.Thread(target=lambda: (time.sleep(3), os.kill(victim, signal.SIGKILL)), daemon=True).start()
    assert GridRun(configuration, cells, engine).run() == {}
    assert configuration.results().missing(cells) == []


def test_ray_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'octavo\[ray\]'"):
        OnRay(RunConfiguration(model="m", data=None, output=str(tmp_path)))


def test_a_ray_that_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreachable:
        @staticmethod
        def init(**options: object) -> None:
            raise ConnectionError("no cluster there")

    monkeypatch.setitem(sys.modules, "ray", Unreachable)
    with pytest.raises(OctavoError, match="Ray cannot be reached at ray://nowhere: no cluster there"):
        OnRay(RunConfiguration(model="m", data=None, output=str(tmp_path)), address="ray://nowhere")


def test_an_address_where_nobody_listens_fails_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", object())  # not asked
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, so that nobody else listens there
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OctavoError, match=f"Ray cannot be reached at {address}"):
            OnRay(RunConfiguration(model="m", data=None, output=str(tmp_path)), address=address)
