"""`octavo quantize`: a recipe and some texts turn a float model into a quantized one on disk."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

import octavo
from octavo.cli.command import command
from octavo.cli.console import Console
from octavo.cli.exportable import warn_unless_exportable
from octavo.cli.options import (
    TEXT_FILE,
    Device,
    DeviceOption,
    ForceOption,
    HeadOption,
    ModelArgument,
    RecipeOption,
    SeedOption,
)
from octavo.cli.summary import summary_table
from octavo.spec import Recipe
from octavo.spec.presets import recipe as find_recipe
from octavo.versions import versions

if TYPE_CHECKING:
    from octavo.graph import QuantizedEncoder, Text

_HELP = """Quantize a model by a recipe and save it.

The ranges of activations come from running the calibration texts, a few dozen that look like what the model
will see. The folder holds packed integers, scales and the tokenizer as plain files; `octavo.load`,
`octavo evaluate` and the other commands read it. Quantization is simulated when it runs: floats are rounded
to where the integers would be.

Examples:

* `octavo quantize demo:minilm --recipe w8a8-mp --calibration texts.txt -o minilm-w8a8`
* `octavo quantize my-bert --recipe mine.yaml --calibration texts.txt --limit 64 -o out --force`
* `octavo quantize my-bert --recipe w4a32 -o out` (weights only: no texts needed)
* `octavo quantize my-bert --recipe w4a32-adaround --calibration texts.txt --work rounding -o out`
"""


@command("quantize", _HELP)
def _quantize(
    console: Console,
    model: ModelArgument,
    recipe: RecipeOption,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Where the model is saved; created if absent.",
            show_default=False,
        ),
    ],
    calibration: Annotated[
        Path | None,
        typer.Option(
            "--calibration",
            metavar="FILE",
            help=f"Texts to find the ranges of activations with: {TEXT_FILE}. Weights alone need none.",
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option(
            "--batch-size", min=1, help="Texts per batch; matters to ranges that are averaged over batches."
        ),
    ] = 1,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, metavar="N", help="Use at most the first N texts.", show_default="all"
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            min=3,
            metavar="TOKENS",
            help="Truncate texts to at most this many tokens.",
            show_default="the model's own limit",
        ),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(
            "--work",
            metavar="DIR",
            help="Keep finished AdaRound weights here; after an interruption the same command resumes.",
            show_default=False,
        ),
    ] = None,
    force: ForceOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    head: HeadOption = None,
) -> None:
    chosen, texts = _read(console, recipe, calibration, limit, output, force)
    encoder = console.load(model, head=head, device=device, seed=seed)
    warn_unless_exportable(console, encoder)
    with console.progress(f"Quantizing by {chosen.name}") as progress:
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
    _report(console, quantized, output)


def _read(
    console: Console,
    recipe: str,
    calibration: Path | None,
    limit: int | None,
    output: Path,
    force: bool,
) -> tuple[Recipe, list[Text] | None]:
    """Read the inputs and refuse what can be refused before the seconds that loading a model takes."""
    from octavo.files import check_output
    from octavo.graph.saved.write import MANIFEST

    check_output(output, force, marker=MANIFEST)
    return find_recipe(recipe), None if calibration is None else console.read_texts(calibration, limit)


def _report(console: Console, model: QuantizedEncoder, folder: Path) -> None:
    from octavo.methods.description import describe_saved

    described = describe_saved(model, folder)
    console.show(f"Quantized {model.name} by the recipe {model.recipe.name}:", summary_table(described))
    console.show(f"Saved in {folder}. To compare it with the original:")
    console.show(f"  octavo evaluate {quote(str(folder))} --against {quote(model.name)} --texts FILE")
    document = {"model": model.name, "output": str(folder), **described, **model.provenance}
    console.result({**document, "versions": versions()})
