"""`octavo export`: a saved model as a file that runs in integers, a folder for the hub, or encodings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from octavo.cli.command import command
from octavo.cli.console import Console
from octavo.cli.options import TEXT_FILE, ForceOption, ModelArgument
from octavo.errors import MissingExtraError, ModelError, OctavoError
from octavo.runtime.backends import BACKENDS, DEFAULT
from octavo.runtime.targets import DEFAULT_TARGET, TARGETS
from octavo.versions import versions

if TYPE_CHECKING:
    from octavo.graph import Encoder
    from octavo.runtime.backends.backend import IntegerReport
    from octavo.runtime.hub.card import FileEntry

_HELP = """Export a model for deployment.

`--to onnx` writes one ONNX file with QuantizeLinear and DequantizeLinear, weights stored once as integers,
batch and length free. `--runtime` says what it is tuned for; either runtime loads either file. Before the
file takes its place, it is opened in that runtime, and a quantized linear layer that would still run in float
is an error; `--no-check` writes the file all the same.

`--target` says which processors the file is for: `vnni`, the fastest on x86 with VNNI and on Arm; `avx2`, for
x86 without VNNI, where 8-bit weights would overflow; `web`, the vectors of Python in browsers to the bit,
slower elsewhere; `any`, both.
`--reduce-range` rounds weights to 7 bits, which other kernels may need; it is less faithful.

`--layout hub` writes a folder that others' tools open as it is: `onnx/model.onnx`
(text-embeddings-inference), `onnx/model_quantized.onnx` (transformers.js, Infinity), `openvino/`
(sentence-transformers, optimum), tokenizer, configuration, and a model card. With `--texts` the files are
measured against the float model for the card, which otherwise says that nothing was measured. `octavo push`
uploads the folder.

`--to encodings` writes every scale and offset as JSON, for toolchains that quantize a graph themselves.

Examples:

* `octavo quantize demo:minilm --recipe int8 --calibration texts.txt -o minilm-int8`
* `octavo export minilm-int8 -o minilm-int8.onnx`
* `octavo export minilm-int8 -o minilm-ov.onnx --runtime openvino`
* `octavo export minilm-int8 -o minilm-hub --layout hub --texts texts.txt`
* `octavo export minilm-int8 --to encodings -o encodings.json`
"""


_OPSET = 21


class Target(StrEnum):
    """What a model is exported to."""

    onnx = "onnx"
    encodings = "encodings"


class Layout(StrEnum):
    """What is written: one file, or a folder as the hub's tools expect it."""

    file = "file"
    hub = "hub"


class QuantizedModel(StrEnum):
    """Whom `onnx/model_quantized.onnx` of a folder for the hub is for."""

    browsers = "browsers"
    servers = "servers"


class PlainModel(StrEnum):
    """What `onnx/model.onnx` of a folder for the hub is."""

    int8 = "int8"
    float = "float"


if TYPE_CHECKING:
    Runtime = str
    Processors = str
else:
    Runtime = StrEnum("Runtime", {name: name for name in BACKENDS})
    Processors = StrEnum("Processors", {name: name for name in TARGETS})
"""What an ONNX file is tuned for: names of backends and targets, as types that Typer makes choices of."""


@command("export", _HELP)
def _export(
    console: Console,
    model: ModelArgument,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE|DIR", help="The file or folder to write.", show_default=False
        ),
    ],
    to: Annotated[Target, typer.Option("--to", help="What to write.")] = Target.onnx,
    layout: Annotated[
        Layout, typer.Option("--layout", help="One file, or a folder laid out as the hub's tools expect.")
    ] = Layout.file,
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            metavar="FILE",
            help=f"With --layout hub, texts to measure fidelity on: {TEXT_FILE}.",
            show_default="nothing is measured",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="MODEL",
            help="With --layout hub, the float model to measure against.",
            show_default="the one that was quantized",
        ),
    ] = None,
    model_onnx: Annotated[
        PlainModel | None,
        typer.Option(
            "--model-onnx", help="With --layout hub, what onnx/model.onnx holds.", show_default="int8"
        ),
    ] = None,
    model_quantized: Annotated[
        QuantizedModel | None,
        typer.Option(
            "--model-quantized",
            help="With --layout hub, whom onnx/model_quantized.onnx is for: browsers get Python's vectors, "
            "servers the speed of onnx/model.onnx.",
            show_default="browsers",
        ),
    ] = None,
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
    target: Annotated[
        Processors | None,
        typer.Option("--target", help="The processors that files are for.", show_default=DEFAULT_TARGET),
    ] = None,
    reduce_range: Annotated[
        bool | None,
        typer.Option("--reduce-range", help="Round 8-bit weights to 7 bits.", show_default=False),
    ] = None,
    force: ForceOption = False,
) -> None:
    from octavo.files import check_output
    from octavo.runtime.backends.onnx_files import check_name

    of_files = {"--backend": runtime, "--opset": opset}
    of_folders = {
        "--texts": texts,
        "--against": against,
        "--model-onnx": model_onnx,
        "--model-quantized": model_quantized,
    }
    if layout is Layout.hub:
        _refuse("--layout hub", of_files | {"--to encodings": None if to is Target.onnx else to})
        folder_options = {
            "float_onnx": model_onnx is PlainModel.float,
            "for_browsers": model_quantized is not QuantizedModel.servers,
            "target": str(target or DEFAULT_TARGET),
            "reduce_range": bool(reduce_range),
            "check": check is not False and _can_check(console, DEFAULT),
            "force": force,
        }
        return _write_hub(console, model, output, texts, against, folder_options)
    _refuse("one file", of_folders, "use --layout hub")
    if to is Target.encodings:
        of_files |= {"--check": check, "--reduce-range": reduce_range or None, "--target": target}
        _refuse("--to encodings", of_files, "use --to onnx")
    else:
        check_name(output)
    check_output(output, force)
    encoder = console.load(model)
    if to is Target.encodings:
        written = _write_encodings(encoder, output, force)
    else:
        chosen = str(runtime or DEFAULT)
        options = {
            "opset": opset or _OPSET,
            "force": force,
            "target": str(target or DEFAULT_TARGET),
            "reduce_range": bool(reduce_range),
        }
        written = _write_onnx(console, encoder, output, chosen, check is not False, options)
    console.show(f"Wrote {output} ({written['megabytes']:.1f} MB).")
    console.result({"model": model, "output": str(output), **written, "versions": versions()})


def _refuse(what: str, options: Mapping[str, object], instead: str = "leave out --layout") -> None:
    """Refuse options that mean nothing for what is written."""
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise OctavoError(f"{what} does not read {', '.join(given)}; drop it, or {instead}")


def _write_hub(
    console: Console,
    model: str,
    output: Path,
    texts: Path | None,
    against: str | None,
    options: dict[str, Any],
) -> None:
    from octavo.files import check_output
    from octavo.runtime.hub.layout import PLAIN, write_hub_folder

    check_output(output, options["force"], PLAIN)
    chosen = [] if texts is None else console.read_texts(texts)
    encoder = console.load(model)
    needed = bool(chosen) or options["float_onnx"] or against is not None
    reference = _reference(console, encoder, against) if needed else None
    with console.progress(f"Writing {output}") as progress:
        written = write_hub_folder(
            encoder, output, texts=chosen, against=reference, progress=progress, **options
        )
    if not any(file.path.endswith(".xml") for file in written.files):
        console.warn("OpenVINO is not installed, so openvino/ is absent; pip install 'octavo[openvino]'")
    if not chosen:
        console.warn("The model card says that nothing was measured; give --texts FILE to measure.")
    upload = f"octavo push {quote(str(output))} OWNER/NAME"
    console.show(_hub_table(written.files), f"Wrote {output}; {upload} uploads it.")
    files = [
        {
            "path": file.path,
            "megabytes": file.megabytes,
            "quality": None if file.quality is None else file.quality.to_dict(),
        }
        for file in written.files
    ]
    console.result(
        {"model": model, "output": str(output), "layout": "hub", "files": files, "versions": versions()}
    )


def _reference(console: Console, encoder: Encoder, against: str | None) -> Encoder | None:
    """Return the float model: the one named, or the one that was quantized if it is still there."""
    provenance = getattr(encoder, "provenance", None)
    if against is not None:
        return console.load(against)
    if provenance is None:  # a float model is its own reference
        return None
    source = str(provenance.get("model", ""))
    if not (source.startswith("demo:") or Path(source).is_dir()):
        raise ModelError(
            f"the float model {source or 'that was quantized'} is not here; give it with --against MODEL"
        )
    return console.load(source)


def _hub_table(files: Sequence[FileEntry]) -> Table:
    table = Table()
    for column in ("file", "MB", "cosine", "worst"):
        table.add_column(column, justify="left" if column == "file" else "right")
    for file in files:
        cosine = file.quality.cosine if file.quality else None
        numbers = (f"{cosine.mean:.4f}", f"{cosine.worst:.4f}") if cosine else ("", "")
        table.add_row(file.path, f"{file.megabytes:.1f}", *numbers)
    return table


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
