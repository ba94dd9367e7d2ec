"""Are integers used? What a backend makes of an artifact, and which layers it still computes in float."""

from __future__ import annotations

from pathlib import Path

from octavo.errors import ModelError
from octavo.runtime.backends import DEFAULT, find_backend
from octavo.runtime.backends.backend import IntegerReport

_REMEDY = (
    "export with another recipe (int8 runs in integers throughout) or for another backend, "
    "or accept it: --no-check on the command line, check=False in Python"
)


def check_integers(path: str | Path, backend: str = DEFAULT) -> IntegerReport:
    """Report on integer kernels; a linear layer that is quantized and still runs in float is an error."""
    chosen, file = find_backend(backend), Path(path)
    chosen.require()
    report = chosen.count_integer_kernels(file)
    if report.floats:
        more = f" and {len(report.floats) - 3} more" if len(report.floats) > 3 else ""
        raise ModelError(
            f"{file.name}: {backend} computes {', '.join(report.floats[:3])}{more} in float although the "
            f"file quantizes them; {_REMEDY}"
        )
    if chosen.kernel_for_each_product and report.kernels < report.products:
        raise ModelError(
            f"{file.name}: {report.products} products are quantized, but {backend} has only "
            f"{report.kernels} integer kernels for them; {_REMEDY}"
        )
    return report
