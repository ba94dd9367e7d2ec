"""Can it be exported? A question that commands ask before they spend time on calibration or training."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from octavo.cli.console import Console
from octavo.errors import ModelError

if TYPE_CHECKING:
    from octavo.graph import Encoder


def can_export() -> bool:
    """Return whether ONNX files can be written here at all."""
    return find_spec("onnx") is not None


def warn_unless_exportable(console: Console, encoder: Encoder) -> None:
    """Warn of a model that `octavo export` will refuse, naming the operation and where it stands.

    Quantized, it can still be simulated, measured and trained, so this is no error. Without the package that
    writes files nobody can tell, and `octavo export` asks for it first.
    """
    if not can_export():
        return
    from octavo.runtime.exporting import check_exportable

    try:
        check_exportable(encoder)
    except ModelError as error:
        console.warn(
            f"{error}; what is saved can be simulated and measured, but octavo export will refuse it"
        )
