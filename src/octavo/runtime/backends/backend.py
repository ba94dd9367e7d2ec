"""The interface of a backend."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import MissingExtraError, ModelError, SpecError
from octavo.runtime.backends.runner import Arrays, Runner
from octavo.runtime.targets import DEFAULT_TARGET, TARGETS, Target, warn_of_processor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from octavo.graph.encoder import Encoder


@dataclass(frozen=True, kw_only=True)
class IntegerReport:
    """How a backend computes the products that an artifact quantizes.

    Arguments:
        products: how many products read 8-bit integers on both sides in the artifact.
        kernels: how many integer kernels the backend runs.
        floats: names of products among them that run in float all the same.
    """

    backend: str
    products: int
    kernels: int
    floats: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return asdict(self) | {"floats": list(self.floats)}


@dataclass(frozen=True, kw_only=True)
class Backend(ABC):
    """What executes an artifact: it writes and opens it, counts its integer kernels, and measures it.

    A new backend is one module beside this one, which holds a subclass and an object of it, and its line in
    the package's table. Export, benchmarks, checks and commands read that table and know no backend by name.
    Commands list the table in their help, so that heavy packages are imported inside of methods.

    An artifact need not be an ONNX file; those that are share `OnnxBackend`. Kernels on a GPU, say, derive
    from this class itself: `package` is torch and `endings` are those of a folder; `write` packs the integers
    of `model.quantizers` into safetensors within `octavo.files.write_folder`, and refuses an `opset`; `load`
    moves them to the device and returns a runner that copies token ids there and outputs back;
    `count_integer_kernels` counts the layers that have such a kernel; `time` waits for the device before it
    reads the clock; `peak_megabytes` asks the device's allocator.

    Arguments:
        name: what users call it.
        package: what must be installed to open an artifact.
        extra: the extra of Octavo that installs the package.
        endings: how the names of artifacts that it opens end.
        left_out: roles whose quantizers it is faster or only right without; the result is closer to the float
            model.
        kernel_for_each_product: whether every quantized product has an integer kernel of its own.
        exact_option: the setting by which it computes what an artifact says, and nothing rounder.
        targets: the processors that it can be asked to write for.
        multiplies_unsigned: whether unsigned weights keep sums from saturating; else 7 bits do.
    """

    name: str
    package: str
    extra: str
    endings: tuple[str, ...]
    left_out: frozenset[str] = frozenset()
    kernel_for_each_product: bool = True
    exact_option: str = "an option of its own"
    targets: tuple[str, ...] = (DEFAULT_TARGET,)
    multiplies_unsigned: bool = False

    # -- writing and opening ---------------------------------------------------------------------------------

    @abstractmethod
    def write(
        self,
        model: Encoder,
        path: Path,
        *,
        opset: int | None = None,
        force: bool = False,
        inspect: Callable[[Path], object] | None = None,
        target: Target = TARGETS[DEFAULT_TARGET],
    ) -> Path:
        """Write a model as an artifact, complete or not at all.

        Arguments:
            opset: the ONNX operator set, the backend's choice if left out; others than ONNX's refuse one.
            force: replace what exists.
            inspect: called with the finished artifact before it takes its place; an error keeps it from that.
            target: the processors that it is for, one of `targets`.
        """

    @abstractmethod
    def load(self, path: Path, threads: int | None, exact: bool) -> Runner:
        """Load an artifact; any exception means that it cannot be opened."""

    def open(self, path: str | Path, threads: int | None = None, *, exact: bool = False) -> Runner:
        """Open an artifact for running.

        Arguments:
            threads: how many cores to use; the backend's choice if left out.
            exact: compute what the artifact says, and nothing rounder for the sake of speed.
        """
        self.require()
        file = Path(path)
        if not file.exists():
            raise ModelError(f"{file} is not a file; give one that ends in {' or '.join(self.endings)}")
        try:
            opened = self.load(file, threads, exact)
        except Exception as error:  # each backend raises its own, down to RuntimeError
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise ModelError(f"{self.name} cannot open {file}: {reason.strip()}") from error
        warn_of_processor(file.name, getattr(opened, "metadata", {}))
        return opened

    @property
    def is_installed(self) -> bool:
        """Whether artifacts can be opened here."""
        return find_spec(self.package) is not None

    def require(self) -> None:
        """Refuse to go on without the package, naming the command that installs it."""
        if not self.is_installed:
            raise MissingExtraError(self.extra, f"Running files in {self.name}")

    # -- what an artifact is ---------------------------------------------------------------------------------

    @abstractmethod
    def holds_integers(self, path: Path) -> bool:
        """Return whether anything in an artifact is quantized."""

    def size(self, path: Path) -> int | None:
        """Return the bytes of an artifact's weights, None if they are not on this disk."""
        return path.stat().st_size

    @abstractmethod
    def count_integer_kernels(self, path: Path) -> IntegerReport:
        """Count the integer kernels that the backend uses for an artifact."""

    def site_integers(self, path: Path, batch: Arrays) -> dict[str, NDArray[Any]]:
        """Run an artifact and return its outputs, and the integers of every site as `<site>.q`."""
        raise SpecError(f"{self.name} does not show the integers inside of an artifact; use onnxruntime")

    # -- measuring -------------------------------------------------------------------------------------------

    def time(self, run: Runner, batch: Arrays) -> float:
        """Return the seconds that one run takes."""
        return wall_time(run, batch)

    def peak_megabytes(self) -> float:
        """Return the most memory that this process has needed so far."""
        return resident_megabytes()


def wall_time(run: Runner, batch: Arrays) -> float:
    """Return the seconds that one run takes, by the wall clock."""
    start = time.perf_counter()
    run(batch)
    return time.perf_counter() - start


def resident_megabytes() -> float:
    """Return the peak resident memory of this process."""
    # Linux hands ru_maxrss on from the process that forked this one; the mark below begins anew at exec
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1e3
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)
