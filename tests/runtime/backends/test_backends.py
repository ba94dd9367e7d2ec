"""The table of backends: complete, light to import, and open to artifacts that are not ONNX files."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import octavo
from octavo.errors import ModelError, SpecError
from octavo.graph import Encoder, QuantizedEncoder
from octavo.runtime import backends
from octavo.runtime.artifacts import open_artifacts
from octavo.runtime.backends import BACKENDS, Backend, find_backend
from octavo.runtime.backends.backend import IntegerReport
from octavo.runtime.backends.runner import Arrays, Runner
from octavo.runtime.benchmark import bench
from octavo.runtime.integers import check_integers

MODULES = [module.name for module in pkgutil.iter_modules(backends.__path__)]


def unregistered(module: Any) -> list[str]:
    """Return the backends that a module defines, as classes or objects, and the table lacks."""
    table = list(BACKENDS.values())
    return [
        name
        for name, value in vars(module).items()
        if (isinstance(value, Backend) and value not in table)
        or (
            inspect.isclass(value)
            and issubclass(value, Backend)
            and not inspect.isabstract(value)
            and value not in map(type, table)
        )
    ]


@pytest.mark.parametrize("name", MODULES)
def test_every_backend_of_a_module_is_in_the_table(name: str) -> None:
    missing = unregistered(import_module(f"{backends.__name__}.{name}"))
    assert not missing, f"{', '.join(missing)} of backends/{name}.py: add it to BACKENDS"


def test_a_backend_is_found_by_its_own_name() -> None:
    assert all(find_backend(name).name == name for name in BACKENDS)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(SpecError, match="unknown backend 'x'; use onnxruntime or openvino"):
        find_backend("x")


def test_a_backend_that_shows_no_integers_says_so(tiny_file: Path) -> None:
    with pytest.raises(SpecError, match="openvino does not show the integers"):
        find_backend("openvino").site_integers(tiny_file, {})


# -- a backend that knows nothing of ONNX --------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Saved(Backend):
    """Runs folders that `model.save` wrote, in torch: as far from ONNX as GPU kernels are."""

    def write(
        self,
        model: Encoder,
        path: Path,
        *,
        opset: int | None = None,
        force: bool = False,
        inspect: Callable[[Path], object] | None = None,
    ) -> Path:
        if opset is not None:
            raise SpecError(f"{self.name} has no operator sets, got opset {opset}; leave it out")
        return model.save(path) if isinstance(model, QuantizedEncoder) else path

    def load(self, path: Path, threads: int | None, exact: bool) -> Runner:
        import torch

        model = octavo.load(path)

        def run(batch: Arrays) -> dict[str, NDArray[Any]]:
            outputs = model({name: torch.from_numpy(np.asarray(array)) for name, array in batch.items()})
            return {name: tensor.numpy() for name, tensor in outputs.items()}

        return run

    def holds_integers(self, path: Path) -> bool:
        return True

    def size(self, path: Path) -> int:
        return (path / "model.safetensors").stat().st_size

    def count_integer_kernels(self, path: Path) -> IntegerReport:
        return IntegerReport(backend=self.name, products=3, kernels=2, floats=())

    def time(self, run: Runner, batch: Arrays) -> float:
        run(batch)
        return 0.25


@pytest.fixture
def saved_backend(monkeypatch: pytest.MonkeyPatch) -> Backend:
    backend = Saved(name="saved", package="torch", extra="gpu", endings=(".gpu",))
    monkeypatch.setitem(BACKENDS, "saved", backend)
    return backend


def test_an_artifact_need_not_be_an_onnx_file(
    saved_backend: Backend, tiny_int8: QuantizedEncoder, tmp_path: Path
) -> None:
    folder = octavo.export(tiny_int8, tmp_path / "model.gpu", backend="saved")
    (artifact,) = open_artifacts(str(folder))
    assert (artifact.backend, artifact.kind, artifact.name) == ("saved", "integer", "model.gpu (saved)")
    (row,) = bench([str(folder)], shapes=((1, 4),), seconds=0.0, memory=False, threads=1).rows
    assert row.backend == "saved" and row.timings[0].median_ms == 250
    with pytest.raises(ModelError, match=r"3 products are quantized, but saved has only 2 integer kernels"):
        check_integers(folder, "saved")
    with pytest.raises(SpecError, match="saved has no operator sets, got opset 21"):
        octavo.export(tiny_int8, tmp_path / "other.gpu", backend="saved", opset=21)


def test_the_test_finds_a_backend_that_nobody_registered() -> None:
    import sys

    assert unregistered(sys.modules[__name__]) == ["Saved"]
