"""`octavo export`: a saved model as an ONNX file that runs in integers, or as encodings."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.command import command
from octavo.cli.console import Console
from octavo.cli.options import ForceOption, ModelArgument
from octavo.errors import MissingExtraError, ModelError, OctavoError
from octavo.runtime.backends import BACKENDS, DEFAULT
from octavo.versions import versions

if TYPE_CHECKING:
    from octavo.graph import Encoder
    from octavo.runtime.backends.backend import IntegerReport

_HELP = """Export a model for deployment.

`--to onnx` writes one ONNX file with QuantizeLinear and DequantizeLinear, weights stored once as integers,
batch and length free. `--runtime` says what it is tuned for; either runtime loads either file. Before the
file takes its place, it is opened in that runtime, and a quantized linear layer that would still run in float
is an error; `--no-check` writes the file all the same.

x86 processors without VNNI overflow where 8-bit weights meet 8-bit activations. `--reduce-range` rounds such
weights again, to 7 bits: safe everywhere and less faithful, so measure the file.

`--to encodings` writes every scale and offset as JSON, for toolchains that quantize a graph themselves.

Examples:

* `octavo quantize demo:minilm --recipe int8 --calibration texts.txt -o minilm-int8`
* `octavo export minilm-int8 -o minilm-int8.onnx`
* `octavo export minilm-int8 -o minilm-ov.onnx --runtime openvino`
* `octavo export minilm-int8 --to encodings -o encodings.json`
"""


_OPSET = 21


class Target(StrEnum):
    """What a model is exported to."""

    onnx = "onnx"
    encodings = "encodings"


if TYPE_CHECKING:
    Runtime = str
else:
    Runtime = StrEnum("Runtime", {name: name for name in BACKENDS})
"""What an ONNX file is tuned for: the name of a backend, as a type that Typer makes choices of."""


@command("export", _HELP)
def _export(
    console: Console,
    model: ModelArgument,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="The file to write.", show_default=False),
    ],
    to: Annotated[Target, typer.Option("--to", help="What to write.")] = Target.onnx,
    runtime: Annotated[
        Runtime | None,
        typer.Option("--backend", "--runtime", help="What the ONNX file is tuned for.", show_default=DEFAULT),
    ] = None,
    opset: Annotated[
        int | None,
        typer.Option(
            "--opset",
            metavar="N",
            help="ONNX operator set; 16-bit and 4-bit integers need 21.",
            show_default="21",
        ),
    ] = None,
    check: Annotated[
        bool | None,
        typer.Option(
            "--check/--no-check",
            help="Open the ONNX file in the runtime and count its integer kernels.",
            show_default="check",
        ),
    ] = None,
    reduce_range: Annotated[
        bool | None,
        typer.Option(
            "--reduce-range", help="Round 8-bit weights to 7 bits, for x86 without VNNI.", show_default=False
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    from octavo.files import check_output

    if to is Target.encodings:
        _refuse(
            {"--backend": runtime, "--opset": opset, "--check": check, "--reduce-range": reduce_range or None}
        )
    check_output(output, force)
    encoder = console.load(model)
    if to is Target.encodings:
        written = _write_encodings(encoder, output, force)
    else:
        chosen = str(runtime or DEFAULT)
        options = {"opset": opset or _OPSET, "force": force, "reduce_range": bool(reduce_range)}
        written = _write_onnx(console, encoder, output, chosen, check is not False, options)
    console.show(f"Wrote {output} ({written['megabytes']:.1f} MB).")
    console.result({"model": model, "output": str(output), **written, "versions": versions()})


def _refuse(options: dict[str, object]) -> None:
    """Refuse options that mean something for ONNX files only."""
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise OctavoError(f"--to encodings does not read {', '.join(given)}; drop it, or use --to onnx")


def _write_encodings(encoder: Encoder, output: Path, force: bool) -> dict[str, Any]:
    from octavo.graph import QuantizedEncoder
    from octavo.runtime.encoding_files import write_encodings

    if not isinstance(encoder, QuantizedEncoder):
        raise ModelError(f"{encoder.name} is not quantized and has no encodings; run octavo quantize first")
    write_encodings(encoder, output, force)
    return {"to": "encodings", "megabytes": output.stat().st_size / 1e6}


def _write_onnx(
    console: Console, encoder: Encoder, output: Path, runtime: str, check: bool, options: dict[str, Any]
) -> dict[str, Any]:
    from octavo.runtime.exporting import export
    from octavo.runtime.integers import check_integers

    reports: list[IntegerReport] = []

    def inspect(draft: Path) -> None:
        reports.append(check_integers(draft, runtime))

    if check:
        check = _can_check(console, runtime)
    with console.progress(f"Writing {output}"):
        export(encoder, output, backend=runtime, inspect=inspect if check else None, **options)
    for report in reports:
        console.show(_described(encoder, report, runtime))
    written = {"to": "onnx", "runtime": runtime, "megabytes": output.stat().st_size / 1e6}
    integers = reports[0].to_dict() if reports else None
    described = {name: value for name, value in options.items() if name != "force"}
    return written | described | {"integers": integers}


def _described(encoder: Encoder, report: IntegerReport, runtime: str) -> str:
    """Say what the runtime computes in integers."""
    from octavo.graph import QuantizedEncoder

    if not isinstance(encoder, QuantizedEncoder):
        return "The model is not quantized: everything is computed in float."
    if not any(quantizer.site.kind == "activation" for quantizer in encoder.quantizers.values()):
        return (
            f"Weights alone are quantized. {runtime} rounds what they multiply to 8 bits by itself, unless "
            f"{BACKENDS[runtime].exact_option} forbids it."
        )
    return f"{report.products} products read 8-bit integers; {runtime} has {report.kernels} integer kernels."


def _can_check(console: Console, runtime: str) -> bool:
    try:
        BACKENDS[runtime].require()
    except MissingExtraError as error:
        console.warn(f"The file was not checked in a runtime: {error}")
        return False
    return True
