"""What backends that run ONNX files share: writing a file, and what is in it."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import MissingExtraError, ModelError, SpecError
from octavo.runtime.backends.backend import Backend
from octavo.runtime.targets import DEFAULT_TARGET, TARGETS, Target
from octavo.runtime.translate.options import Options

if TYPE_CHECKING:
    from onnx import ModelProto

    from octavo.graph.encoder import Encoder

MOST_BYTES = 2**31
"""One file holds everything: no external data, whose paths would have to be trusted."""

OPSET = 21
"""The operator set of files unless told otherwise: the first that has 16-bit and 4-bit integers."""


@dataclass(frozen=True, kw_only=True)
class OnnxBackend(Backend, ABC):
    """A backend that runs ONNX files with QuantizeLinear and DequantizeLinear.

    Arguments:
        flattens, fuses: as in the translator's options.
    """

    endings: tuple[str, ...] = (".onnx",)
    flattens: bool = True
    fuses: bool = False

    def options(self, target: Target) -> Options:
        """What the translator is asked for."""
        return Options(
            left_out=self.left_out,
            flattens=self.flattens,
            fuses=self.fuses,
            unsigned_weights=target.without_vnni and self.multiplies_unsigned,
            exact_floats=target.exact_floats,
        )

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
        """Write an ONNX file that ONNX's own checker accepts."""
        # brings safetensors, which who only lists or runs files does without
        from octavo.files import check_output, write_file

        require_onnx()
        check_name(path)
        check_output(path, force)
        proto = self.onnx_model(model, opset, target)
        if proto.ByteSize() >= MOST_BYTES:
            raise SpecError(
                f"{model.name} takes {proto.ByteSize()} bytes, ONNX files hold less than 2 GiB; "
                "quantize it first"
            )
        with write_file(path, force) as draft:
            draft.write_bytes(proto.SerializeToString())
            check_file(draft)
            if inspect is not None:
                inspect(draft)
        return path

    def onnx_model(
        self, model: Encoder, opset: int | None = None, target: Target = TARGETS[DEFAULT_TARGET]
    ) -> ModelProto:
        """Return the ONNX model in memory."""
        require_onnx()
        # brings torch, which who only lists or runs files does without
        from octavo.runtime.translate.model import onnx_model

        chosen = OPSET if opset is None else opset
        return onnx_model(model, self.options(target), chosen, target, {"runtime": self.name})

    def holds_integers(self, path: Path) -> bool:
        """Return whether a file has nodes that quantize."""
        import onnx

        nodes = onnx.load(str(path), load_external_data=False).graph.node
        return any(
            node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul") for node in nodes
        )


def check_name(path: Path) -> None:
    """Refuse a file whose name says that it is of OpenVINO's own format, which is two files."""
    if path.suffix.lower() == ".xml":
        raise SpecError(
            f"{path} would be an ONNX file by another name; end it in .onnx, which OpenVINO runs, too, "
            "or write a folder with OpenVINO's own format: --layout hub"
        )


def require_onnx() -> None:
    """Say which extra is missing, before any work is done."""
    if find_spec("onnx") is None:
        raise MissingExtraError("onnx", "ONNX export")


def check_file(path: Path) -> None:
    """Let ONNX check a file, shapes included; a complaint is an error."""
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ModelError(f"{path.name}: ONNX's checker refuses the file: {error}") from error
