"""`octavo export`: a saved model as an ONNX file that runs in integers, or as encodings."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.options import (
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    ModelArgument,
    SeedOption,
)
from octavo.cli.session import Session, session
from octavo.errors import MissingExtraError, ModelError
from octavo.runtime.backends import BACKENDS, DEFAULT
from octavo.versions import versions

if TYPE_CHECKING:
    from octavo.graph import Encoder

_HELP = """Export a model for deployment.

`--to onnx` writes one ONNX file with QuantizeLinear and DequantizeLinear, weights stored once as integers,
batch and length free. `--runtime` says what it is tuned for; either runtime loads either file. After writing,
the file is opened in that runtime, and a quantized linear layer that would still run in float is an error.

`--to encodings` writes every scale and offset as JSON, for toolchains that quantize a graph themselves.

Examples:

* `octavo quantize demo:minilm --recipe int8 --calibration texts.txt -o minilm-int8`
* `octavo export minilm-int8 -o minilm-int8.onnx`
* `octavo export minilm-int8 -o minilm-ov.onnx --runtime openvino`
* `octavo export minilm-int8 --to encodings -o encodings.json`
"""


class Target(StrEnum):
    """What a model is exported to."""

    onnx = "onnx"
    encodings = "encodings"


if TYPE_CHECKING:
    Runtime = str
else:
    Runtime = StrEnum("Runtime", {name: name for name in BACKENDS})
"""What an ONNX file is tuned for: the name of a backend, as a type that Typer makes choices of."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("export", help=_HELP)(_export)


def _export(
    model: ModelArgument,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write.", show_default=False),
    ],
    to: Annotated[Target, typer.Option("--to", help="What to write.")] = Target.onnx,
    runtime: Annotated[Runtime, typer.Option(help="What the ONNX file is tuned for.")] = DEFAULT,
    opset: Annotated[
        int, typer.Option(help="ONNX operator set; 16-bit and 4-bit integers need 21.", metavar="N")
    ] = 21,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Open the file in the runtime and count its kernels.")
    ] = True,
    force: ForceOption = False,
    as_json: JsonOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    debug: DebugOption = False,
) -> None:
    from octavo.files import check_output

    with session(as_json=as_json, seed=seed, device=device, debug=debug) as current:
        check_output(output, force)
        encoder = current.load(model)
        if to is Target.encodings:
            found = _write_encodings(encoder, output, force)
        else:
            found = _write_onnx(current, encoder, output, str(runtime), opset, check, force)
        current.show(f"Wrote {output} ({found['megabytes']:.1f} MB).")
        current.result({"model": model, "output": str(output), **found, "versions": versions()})


def _write_encodings(encoder: Encoder, output: Path, force: bool) -> dict[str, Any]:
    from octavo.graph import QuantizedEncoder
    from octavo.runtime.encoding_files import write_encodings

    if not isinstance(encoder, QuantizedEncoder):
        raise ModelError(f"{encoder.name} is not quantized and has no encodings; run octavo quantize first")
    write_encodings(encoder, output, force)
    return {"to": "encodings", "megabytes": output.stat().st_size / 1e6}


def _write_onnx(
    current: Session, encoder: Encoder, output: Path, runtime: str, opset: int, check: bool, force: bool
) -> dict[str, Any]:
    from octavo.runtime.exporting import export

    with current.progress(f"Writing {output}"):
        export(encoder, output, backend=runtime, opset=opset, force=force)
    found = {"to": "onnx", "runtime": runtime, "opset": opset, "megabytes": output.stat().st_size / 1e6}
    return found | {"integers": _integers(current, output, runtime) if check else None}


def _integers(current: Session, output: Path, runtime: str) -> dict[str, Any] | None:
    from octavo.runtime.integers import check_integers

    try:
        report = check_integers(output, runtime)
    except MissingExtraError as error:
        current.warn(f"The file was not checked in a runtime: {error}")
        return None
    current.show(
        f"{report.products} products read 8-bit integers; {runtime} has {report.kernels} integer kernels."
    )
    return report.to_dict()
