"""`octavo diagnose`: why a model breaks when it is quantized, as findings, tables and a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text as Line

from octavo.cli.command import command
from octavo.cli.completion import recipe_names
from octavo.cli.console import Console
from octavo.cli.options import (
    TEXT_FILE,
    Device,
    DeviceOption,
    ForceOption,
    HeadOption,
    ModelArgument,
    SeedOption,
)
from octavo.cli.tasks import LabelOption, TaskChoice, TaskOption, TextOption

if TYPE_CHECKING:
    from octavo.diagnosis import Diagnosis
    from octavo.graph import Encoder, Text
    from octavo.spec import Recipe

_HELP = """Show why a model breaks when it is quantized.

Reads some texts (twenty are enough, no labels) and finds the tensors that 8 bits hurt most, the dimensions
and tokens that carry outliers, the attention heads behind them, what each part of the model costs, and the
recipe that repairs it. With `-o` it writes `report.html`, one page that needs nothing else, beside
`report.json` and the figures; the same command resumes a run that was interrupted.

`--sensitivity` leaves one group of tensors after the other in float, and quantizes one after the other alone:
`roles` is the paper's table 2, `last` the same for the last two layers, then `layers` and `sites`.

Examples:

* `octavo diagnose demo:minilm --texts texts.txt -o diagnosis`
* `octavo diagnose my-bert --texts texts.txt --sensitivity roles,layers,sites -o diagnosis`
* `octavo diagnose my-bert-rte --texts texts.txt --task glue/rte --data GLUE_DIR -o diagnosis`
"""
_STYLES = {"problem": "bold red", "note": "bold", "fine": "bold green", "advice": "bold green"}
_WORST = 10


@command("diagnose", _HELP)
def _diagnose(
    console: Console,
    model: ModelArgument,
    texts: Annotated[
        Path,
        typer.Option("--texts", metavar="FILE", help=f"Texts to run: {TEXT_FILE}.", show_default=False),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write the report here.", show_default="no report"
        ),
    ] = None,
    sensitivity: Annotated[
        str,
        typer.Option(
            "--sensitivity",
            metavar="SCOPES",
            help="roles, last, layers, sites, separated by commas; all, or none.",
        ),
    ] = "roles,last",
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="NAME|FILE",
            autocompletion=recipe_names,
            help="The recipe whose sensitivity is measured.",
            show_default="8-bit activations, as in table 2",
        ),
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option(
            "--sequence",
            min=1,
            metavar="N",
            help="Number of the text whose tokens and attention are shown.",
            show_default="the first long one",
        ),
    ] = None,
    attention: Annotated[
        bool, typer.Option("--attention/--no-attention", help="Look at the attention heads.")
    ] = True,
    task: TaskOption = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="PATH",
            help="Your own data, whose score is added; or GLUE's folder: adds a panel for each task there.",
            show_default=False,
        ),
    ] = None,
    text: TextOption = None,
    label: LabelOption = None,
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
            min=4,
            metavar="TOKENS",
            help="Truncate texts to at most this many tokens.",
            show_default="the model's own limit",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Texts per batch.")] = 8,
    force: ForceOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    head: HeadOption = None,
) -> None:
    scopes = _scopes(sensitivity)
    chosen = _read_recipe(recipe)
    choice = _choice(task, data, text or (), label or ())
    read, score = _read_texts(texts, limit), _score(choice, data)
    panels = _panels(data) if choice.is_glue or not choice else None
    encoder = console.load(model, head=head, device=device, seed=seed)
    choice.check_fits(encoder)
    from octavo.diagnosis import diagnose

    try:
        diagnosis = diagnose(
            encoder,
            read,
            output=output,
            sensitivity=scopes,
            recipe=chosen,
            sequence=sequence,
            attention=attention,
            score=score,
            task=(task or str(data)) if choice else None,
            panels=panels,
            batch_size=batch_size,
            max_length=max_length,
            seed=seed,
            source=str(texts),
            force=force,
            progress=console.progress,
        )
    except KeyboardInterrupt:
        if output is not None:
            console.warn(f"what was measured so far is in {output}; the same command resumes there")
        raise
    show(console, diagnosis)
    console.result(diagnosis.to_dict())


def show(console: Console, diagnosis: Diagnosis) -> None:
    """Print the findings, the worst sites and where the report is."""
    for finding in diagnosis.findings:
        console.show(Line(finding.title, style=_STYLES[finding.level]), Line(finding.text))
        console.show(*(Line(f"- {item}") for item in finding.evidence))
        for line in finding.commands:
            console.write(f"    {line}")
        console.show("")
    console.show(_worst(diagnosis))
    if diagnosis.sensitivity is not None:
        console.show(_sensitivity(diagnosis))
    console.show(
        f"Report: {diagnosis.report}"
        if diagnosis.report is not None
        else "Add -o DIR for the report with all figures."
    )


def _worst(diagnosis: Diagnosis) -> Table:
    table = Table(title=f"The {_WORST} sites that 8 bits hurt most", title_justify="left")
    table.add_column("site", no_wrap=True)
    for header in ("min", "max", "kurtosis", "SQNR dB", "SQNR dB, median dimension"):
        table.add_column(header, justify="right")
    for site in diagnosis.sites[:_WORST]:
        values = (site.minimum, site.maximum, site.kurtosis)
        table.add_row(
            site.name,
            *(f"{value:.4g}" for value in values),
            f"{site.sqnr_db:.1f}",
            f"{site.typical_sqnr_db:.1f}",
        )
    return table


def _sensitivity(diagnosis: Diagnosis) -> Table:
    measured = diagnosis.sensitivity
    assert measured is not None
    name = measured.measure.replace("sqnr", "SQNR dB")
    title = f"All activations quantized except one group ({name}; all: {measured.everything.value:.4f})"
    table = Table(title=title, title_justify="left")
    table.add_column("scope")
    table.add_column("group", no_wrap=True)
    for header in ("except it", "gain", "only it"):
        table.add_column(header, justify="right")
    for scope in dict.fromkeys(variant.scope for variant in measured.variants):
        for variant in measured.of(scope)[:_WORST]:
            numbers = (f"{variant.left_out.value:.4f}", f"{variant.gain:+.4f}", f"{variant.alone.value:.4f}")
            table.add_row(scope, variant.label, *numbers)
    return table


def _scopes(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if names in ((), ("none",)):
        return ()
    from octavo.diagnosis.chapters.sensitivity import SCOPES, check_scopes

    return SCOPES if names == ("all",) else check_scopes(names)


def _read_recipe(recipe: str | None) -> Recipe | None:
    from octavo.spec.presets import recipe as find_recipe

    return None if recipe is None else find_recipe(recipe)


def _read_texts(texts: Path, limit: int | None) -> list[Text]:
    from octavo.tasks import read_texts

    return read_texts(texts)[:limit]


def _panels(data: Path | None) -> dict[str, tuple[Text, ...]] | None:
    """Read the first texts of every GLUE task in a folder."""
    if data is None:
        return None
    from octavo.diagnosis.chapters.tasks import PANEL_TEXTS
    from octavo.tasks.glue_files import glue_samples

    return glue_samples(data, PANEL_TEXTS)


def _choice(task: str | None, data: Path | None, text: Sequence[str], label: Sequence[str]) -> TaskChoice:
    """Return the task that was asked for; a folder of GLUE alone asks for panels, not for a score."""
    from octavo.tasks.reading.beir import is_collection

    panels = task is None and data is not None and data.is_dir() and not is_collection(data)
    choice = TaskChoice(task=task, data=None if panels else data, text=text, label=label)
    choice.check()
    return choice


def _score(choice: TaskChoice, data: Path | None) -> Callable[[Encoder], float] | None:
    if not choice:
        return None
    from octavo.tasks.scorer import task_scorer

    def score(model: Encoder) -> float:
        return task_scorer(choice.find(model.head), data if choice.is_glue else None)(model)

    return score
