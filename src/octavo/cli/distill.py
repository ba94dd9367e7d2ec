"""`octavo distill`: quantization-aware training without labels, the float model as the teacher."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

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

if TYPE_CHECKING:
    from octavo.graph import QuantizedEncoder
    from octavo.methods.distillation.distilling import DistillationResult

_HELP = """Quantize a model by a recipe, then train it without labels to answer as the float model does.

The recipe is carried out with all its passes, as `octavo quantize` does; training mends what is left: weights
move across rounding, ranges are learned. Any head will do. Texts like those the model will see are enough, a
few hundred to a few thousand; a tenth is held out and judges every epoch, and the best is kept, the start
among them. Minutes on a CPU for a small model. A run that was stopped resumes with the same command.

Examples:

* `octavo distill demo:minilm --recipe w8a8 --texts texts.txt -o minilm-w8a8`
* `octavo distill my-tagger --recipe int8 --texts texts.txt --learn ranges -o out` (weights stay as rounded)
* `octavo distill my-bert --recipe w4a8 --texts texts.txt --hidden 1 --epochs 4 -o out`
* `octavo distill my-large --recipe w8a8 --texts texts.txt --blocks --epochs 2 -o out` (memory of one layer)
"""


class Learn(StrEnum):
    """What training changes."""

    all = "all"
    ranges = "ranges"
    weights = "weights"


def _loss(name: str, help: str) -> Any:
    return typer.Option(f"--{name}", min=0, metavar="WEIGHT", help=help, rich_help_panel="Losses")


@command("distill", _HELP)
def _distill(
    console: Console,
    model: ModelArgument,
    recipe: RecipeOption,
    texts: Annotated[
        Path,
        typer.Option(
            "--texts", metavar="FILE", help=f"Texts to learn from: {TEXT_FILE}.", show_default=False
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="DIR", help="Where the model is saved.", show_default=False),
    ],
    learn: Annotated[
        Learn, typer.Option("--learn", help="Weights and ranges, ranges alone, or weights alone.")
    ] = Learn.all,
    blocks: Annotated[
        bool,
        typer.Option(
            "--blocks", help="Train one layer after the other: less memory, more time, seldom as close."
        ),
    ] = False,
    epochs: Annotated[
        int, typer.Option("--epochs", min=1, help="Passes over the texts, of every block.")
    ] = 10,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Texts per step.")] = 16,
    learning_rate: Annotated[
        float, typer.Option("--learning-rate", min=0, help="Maximum learning rate of weights.")
    ] = 2e-4,
    range_learning_rate: Annotated[
        float, typer.Option("--range-learning-rate", min=0, help="Maximum learning rate of ranges.")
    ] = 5e-2,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, metavar="N", help="Use at most the first N texts.", show_default="all"
        ),
    ] = None,
    max_length: Annotated[
        int, typer.Option("--max-length", min=3, metavar="TOKENS", help="Most tokens of a text.")
    ] = 128,
    calibration_texts: Annotated[
        int, typer.Option("--calibration-texts", min=1, help="Texts that ranges start from.")
    ] = 64,
    temperature: Annotated[
        float,
        typer.Option(
            "--temperature",
            min=0,
            help="Logits are divided by it before the softmax.",
            rich_help_panel="Losses",
        ),
    ] = 1.0,
    relation: Annotated[
        float, _loss("relation", "Of the cosines between the embeddings of a batch, for embedders.")
    ] = 1.0,
    tokens: Annotated[float, _loss("tokens", "Of the token vectors of an embedder.")] = 1.0,
    hidden: Annotated[float, _loss("hidden", "Of the hidden states at the end of every layer.")] = 0.0,
    attention: Annotated[float, _loss("attention", "Of attention probabilities.")] = 0.0,
    force: ForceOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    head: HeadOption = None,
) -> None:
    from octavo.files import check_output
    from octavo.graph.saved.write import MANIFEST
    from octavo.methods.distillation.distilling import check_texts, discard_work, distill
    from octavo.methods.distillation.settings import Distillation
    from octavo.methods.training.checkpoint import checkpoint_beside
    from octavo.methods.training.loop import RunOptions
    from octavo.spec.presets import recipe as find_recipe

    check_output(output, force, marker=MANIFEST)
    chosen = find_recipe(recipe)
    settings = Distillation(
        learn=learn.value,
        blocks=blocks,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        range_learning_rate=range_learning_rate,
        max_length=max_length,
        calibration=calibration_texts,
        temperature=temperature,
        relation=relation,
        tokens=tokens,
        hidden=hidden,
        attention=attention,
    )
    read = console.read_texts(texts, limit)
    check_texts(read)
    encoder = console.load(model, head=head, device=device, seed=seed)
    warn_unless_exportable(console, encoder)
    work = checkpoint_beside(output, seed)
    if work.exists():
        console.note(f"{work} holds an interrupted run; it is continued if it is this one")
    with console.progress(f"Distilling by {chosen.name}") as progress:
        distilled, result = distill(
            encoder, chosen, read, settings, seed=seed, work=work, options=RunOptions(progress=progress)
        )
        distilled.save(output, force=force)
    discard_work(work)
    _report(console, distilled, result, output)


def _report(console: Console, model: QuantizedEncoder, result: DistillationResult, folder: Path) -> None:
    from octavo.methods.description import describe_saved
    from octavo.versions import versions

    described = describe_saved(model, folder)
    console.show(f"Distilled {model.name} by the recipe {model.recipe.name}:", summary_table(described))
    console.show(
        f"Error on {result.held_out} texts held out ({result.measure}): "
        f"{result.error_before:.4g} before, {result.error_after:.4g} after "
        f"{result.texts} texts, {result.seconds:.0f} s"
    )
    if not result.error_after < result.error_before:
        console.warn("no epoch was better than the start, which was kept; try other rates or more texts")
    console.show(f"Saved in {folder}. To compare it with the original:")
    console.show(f"  octavo evaluate {quote(str(folder))} --against {quote(model.name)} --texts FILE")
    document = {"model": model.name, "output": str(folder), **described, **model.provenance}
    console.result({**document, "distillation": result.to_dict(), "versions": versions()})
