"""`octavo diagnose`: why a model breaks when it is quantized, as findings, tables and a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text as Line

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
from octavo.errors import DataError, OctavoError

if TYPE_CHECKING:
    from octavo.diagnosis import Diagnosis
    from octavo.graph import Encoder, Text
    from octavo.spec import Recipe

_HELP = """Show why a model breaks when it is quantized.

Reads some texts (twenty are enough, no labels) and finds the tensors that 8 bits hurt most, the dimensions
and tokens that carry outliers, the attention heads behind them, what each part of the model costs, and the
recipe that repairs it. With `-o` it writes `report.html`, one page that needs nothing else, beside
`report.json` and the figures; the same command again continues a run that was interrupted.

`--sensitivity` leaves one group of tensors after the other in float, and quantizes one after the other alone:
`roles` is the paper's table 2, `last` the same for the last two layers, then `layers` and `sites`.

Examples:

* `octavo diagnose demo:minilm --texts texts.txt -o diagnosis`
* `octavo diagnose my-bert --texts texts.txt --sensitivity roles,layers,sites -o diagnosis`
* `octavo diagnose my-bert-rte --texts texts.txt --task glue/rte --data GLUE_DIR -o diagnosis`
"""
_STYLES = {"problem": "bold red", "note": "bold", "fine": "bold green", "advice": "bold green"}
_WORST = 10


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("diagnose", help=_HELP)(_diagnose)


def _diagnose(
    model: ModelArgument,
    texts: Annotated[
        Path, typer.Option(metavar="FILE", help=f"Texts to run: {TEXT_FILE}.", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write the report here.", show_default="no report"
        ),
    ] = None,
    sensitivity: Annotated[
        str,
        typer.Option(metavar="SCOPES", help="roles, last, layers, sites, separated by commas; all, or none."),
    ] = "roles,last",
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="What sensitivity quantizes by.",
            show_default="8-bit activations, as in table 2",
        ),
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Text to show tokens and attention of.",
            show_default="the first long one",
        ),
    ] = None,
    attention: Annotated[
        bool, typer.Option("--attention/--no-attention", help="Look at the attention heads.")
    ] = True,
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            metavar="TASK",
            help="Add scores of a task: glue/rte, similarity/stsb, ...",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="GLUE_DIR",
            help="GLUE's task folders: adds a panel for each task there.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Use only the first N texts.", show_default="all")
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            min=4,
            metavar="TOKENS",
            help="Truncate texts to so many tokens.",
            show_default="what the model takes",
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts that run at once.")] = 8,
    force: ForceOption = False,
    as_json: JsonOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
    debug: DebugOption = False,
) -> None:
    with session(as_json=as_json, seed=seed, device=device, debug=debug) as current:
        scopes = _scopes(sensitivity)
        chosen = _read_recipe(recipe)
        read, panels = _read_texts(texts, limit), _panels(data)
        encoder = current.load(model)
        from octavo.diagnosis import diagnose

        try:
            found = diagnose(
                encoder,
                read,
                output=output,
                sensitivity=scopes,
                recipe=chosen,
                sequence=sequence,
                attention=attention,
                score=_score(task, data),
                task=task,
                panels=panels,
                batch_size=batch_size,
                max_length=max_length,
                seed=seed,
                source=str(texts),
                force=force,
                progress=current.progress,
            )
        except KeyboardInterrupt:
            if output is not None:
                current.warn(f"what was measured so far is in {output}; the same command continues there")
            raise
        show(current, found)
        current.result(found.to_dict())


def show(current: Session, found: Diagnosis) -> None:
    """Print the findings, the worst sites and where the report is."""
    for finding in found.findings:
        current.show(Line(finding.title, style=_STYLES[finding.level]), Line(finding.text))
        current.show(*(Line(f"- {item}") for item in finding.evidence))
        for command in finding.commands:
            current.write(f"    {command}")
        current.show("")
    current.show(_worst(found))
    if found.sensitivity is not None:
        current.show(_sensitivity(found))
    current.show(
        f"Report: {found.report}"
        if found.report is not None
        else "Add -o DIR for the report with all figures."
    )


def _worst(found: Diagnosis) -> Table:
    table = Table(title=f"The {_WORST} sites that 8 bits hurt most", title_justify="left")
    table.add_column("site", no_wrap=True)
    for header in ("min", "max", "kurtosis", "SQNR dB", "SQNR dB, median dimension"):
        table.add_column(header, justify="right")
    for site in found.sites[:_WORST]:
        values = (site.minimum, site.maximum, site.kurtosis)
        table.add_row(
            site.name,
            *(f"{value:.4g}" for value in values),
            f"{site.sqnr_db:.1f}",
            f"{site.typical_sqnr_db:.1f}",
        )
    return table


def _sensitivity(found: Diagnosis) -> Table:
    measured = found.sensitivity
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
    """The first texts of every GLUE task in a folder."""
    if data is None:
        return None
    from octavo.diagnosis.chapters.tasks import PANEL_TEXTS
    from octavo.tasks import GLUE, read_glue

    there = [task for task in GLUE.values() if (data / task.folder / f"{task.default_split}.tsv").is_file()]
    if not there:
        folders = ", ".join(task.folder for task in GLUE.values())
        raise DataError(
            f"{data} holds none of GLUE's task folders ({folders}); give the folder that holds them"
        )
    return {task.folder: read_glue(task, data).texts[:PANEL_TEXTS] for task in there}


def _score(task: str | None, data: Path | None) -> Callable[[Encoder], float] | None:
    if task is None:
        return None
    from octavo.tasks import TASKS, score_task
    from octavo.tasks.glue import unknown_task

    if task not in TASKS:
        raise unknown_task(task, TASKS)

    def score(model: Encoder) -> float:
        result = score_task(model, task, data=data).score
        if result is None:
            raise OctavoError(f"{task} gives no score for {model.name}")
        return result

    return score
