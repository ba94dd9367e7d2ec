"""`octavo quantize`: a recipe and some texts turn a float model into a quantized one on disk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import octavo
from octavo.cli.options import (
    TEXT_FILE,
    DebugOption,
    Device,
    DeviceOption,
    ForceOption,
    JsonOption,
    ModelArgument,
    SeedOption,
)
from octavo.cli.session import Session, session
from octavo.cli.summary import describe, summary_table
from octavo.spec import Recipe
from octavo.spec.presets import recipe as find_recipe
from octavo.versions import versions

if TYPE_CHECKING:
    from octavo.graph import QuantizedEncoder, Text

_HELP = """Quantize a model by a recipe and save it.

Ranges of activations are found by running the calibration texts, some dozens that look like what the model
will see. The folder holds packed integers, scales and the tokenizer as plain files; `octavo.load`,
`octavo evaluate` and the other commands read it. Quantization is simulated when it runs: floats are rounded
to where the integers would be.

Examples:

* `octavo quantize demo:minilm --recipe w8a8-mp --calibration texts.txt -o minilm-w8a8`
* `octavo quantize my-bert --recipe mine.yaml --calibration texts.txt --limit 64 -o out --force`
* `octavo quantize my-bert --recipe w4a32 -o out` (weights only: no texts needed)
* `octavo quantize my-bert --recipe w4a32-adaround --calibration texts.txt --work rounding -o out`
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("quantize", help=_HELP)(_quantize)


def _quantize(
    model: ModelArgument,
    recipe: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="A preset (see `octavo recipes`) or a YAML file.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Where the model is saved; made if absent.",
            show_default=False,
        ),
    ],
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help=f"Texts to find the ranges of activations with: {TEXT_FILE}. Weights alone need none.",
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option(min=1, help="Texts a batch; matters to ranges that are averages over batches."),
    ] = 1,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use only the first N texts.", metavar="N", show_default="all")
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=3,
            metavar="TOKENS",
            help="Truncate texts to so many tokens.",
            show_default="what the model takes",
        ),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep finished weights of AdaRound here; the same command goes on after an interruption.",
            show_default=False,
        ),
    ] = None,
    force: ForceOption = False,
    as_json: JsonOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    debug: DebugOption = False,
) -> None:
    with session(as_json=as_json, seed=seed, device=device, debug=debug) as current:
        chosen, texts = _read(recipe, calibration, limit, output, force)
        encoder = current.load(model)
        with current.progress(f"Quantizing by {chosen.name}") as progress:
            quantized = octavo.quantize(
                encoder,
                chosen,
                texts,
                batch_size=batch_size,
                seed=seed,
                max_length=max_length,
                work=work,
                progress=progress,
            )
            quantized.save(output, force=force)
        _report(current, quantized, output)


def _read(
    recipe: str, calibration: Path | None, limit: int | None, output: Path, force: bool
) -> tuple[Recipe, list[Text] | None]:
    """What can be refused is refused here, before the seconds that loading a model takes."""
    from octavo.files import check_output
    from octavo.graph.saved.write import MANIFEST
    from octavo.tasks import read_texts

    check_output(output, force, marker=MANIFEST)
    return find_recipe(recipe), None if calibration is None else read_texts(calibration)[:limit]


def _report(current: Session, model: QuantizedEncoder, folder: Path) -> None:
    described = describe(model, folder)
    current.show(f"Quantized {model.name} by the recipe {model.recipe.name}:", summary_table(described))
    current.show(f"Saved in {folder}. To compare it with the original:")
    current.show(f"  octavo evaluate {folder} --against {model.name} --texts FILE")
    found = {"model": model.name, "output": str(folder), **described, **model.provenance}
    current.result({**found, "versions": versions()})
