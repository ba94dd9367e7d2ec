"""`octavo compare`: a table of recipes and what each costs and gains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from octavo.cli.command import command
from octavo.cli.completion import recipe_lists
from octavo.cli.console import Console
from octavo.cli.options import (
    TEXT_FILE,
    Device,
    DeviceOption,
    HeadOption,
    ModelArgument,
)
from octavo.cli.summary import megabytes
from octavo.cli.tasks import DataOption, LabelOption, TaskChoice, TaskOption, TextOption
from octavo.errors import SpecError
from octavo.spec.presets import recipe as find_recipe
from octavo.versions import versions

if TYPE_CHECKING:
    from octavo.experiments.comparison import ComparisonSettings

_HELP = """Quantize a model by several recipes and compare what comes out.

For each recipe the table has the score on a task (`--task`, or your own `--data`), the fidelity to the float
model on texts, the size on disk, the extra parameters of grouped activations, and how many sites have how
many bits. Recipes with the same weights share their calibration passes. With `-o`, finished measurements are
kept, and the same command resumes where it was stopped. With several `--seeds`, the order of the calibration
texts changes and the table has medians.

Examples:

* `octavo compare demo:minilm --recipes w8a8,w8a8-mp,w8a8-peg6 --calibration texts.txt`
* `octavo compare demo:minilm --recipes w8a8,mine.yaml --calibration texts.txt --seeds 0,1,2 -o results`
* `octavo compare my-rte --recipes w8a8,w8a8-mp --calibration texts.txt --task glue/rte --data GLUE_DIR`
* `octavo compare mine --recipes int8,w8a8 --calibration texts.txt --data my.csv --text review --label stars`
"""

# measure -> (title, format)
_COLUMNS = {
    "score": ("score", ".2f"),
    "cosine.mean": ("cosine", ".4f"),
    "cosine.worst": ("worst", ".4f"),
    "sqnr": ("SQNR dB", ".1f"),
    "agreement": ("agreement", ".1%"),
    "correlation": ("correlation", ".4f"),
    "rank_correlation": ("ranks", ".4f"),
    "neighbours": ("neighbours", ".1%"),
    "entities": ("entities", ".1%"),
    "spans": ("answers", ".1%"),
}


@command("compare", _HELP)
def _compare(
    console: Console,
    model: ModelArgument,
    recipes: Annotated[
        str,
        typer.Option(
            "--recipes",
            metavar="A,B,...",
            autocompletion=recipe_lists,
            help="Presets or YAML files, separated by commas.",
            show_default=False,
        ),
    ],
    calibration: Annotated[
        Path,
        typer.Option(
            "--calibration",
            metavar="FILE",
            help=f"Texts to find ranges with: {TEXT_FILE}.",
            show_default=False,
        ),
    ],
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            metavar="FILE",
            help="Texts to measure fidelity on.",
            show_default="those of calibration",
        ),
    ] = None,
    task: TaskOption = None,
    data: DataOption = None,
    text: TextOption = None,
    label: LabelOption = None,
    seeds: Annotated[
        str,
        typer.Option(
            "--seeds", metavar="0,1,...", help="Orders of the calibration texts; more give medians."
        ),
    ] = "0",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=1, metavar="N", help="Calibrate with the first N texts only.", show_default="all"
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Calibration texts per batch.")] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Folder to keep measurements in, made or continued.",
            show_default=False,
        ),
    ] = None,
    device: DeviceOption = Device.auto,
    head: HeadOption = None,
) -> None:
    choice = TaskChoice(task=task, data=data, text=text or (), label=label or ())
    chosen = [find_recipe(name) for name in _split(recipes, "--recipes")]
    settings = _settings(console, calibration, texts, seeds, limit, batch_size)
    choice.check()
    encoder = console.load(model, head=head, device=device)
    choice.check_fits(encoder)
    if choice:
        of_glue = str(data) if choice.is_glue and data is not None else None
        settings = replace(settings, task=choice.find(encoder.head), data=of_glue)
    from octavo.experiments.comparison import compare_recipes

    with console.progress(f"Comparing {len(chosen)} recipes") as progress:
        rows = compare_recipes(encoder, chosen, settings, folder=output, progress=progress)
    console.show(_table(model, rows))
    if output is not None:
        console.show(f"Kept in {output}; the same command goes on from there.")
    console.result({"model": model, "rows": rows, **settings.to_dict(), "versions": versions()})


def _settings(
    console: Console,
    calibration: Path,
    texts: Path | None,
    seeds: str,
    limit: int | None,
    batch_size: int,
) -> ComparisonSettings:
    from octavo.experiments.comparison import ComparisonSettings

    calibrating = console.read_texts(calibration)
    return ComparisonSettings(
        calibration=tuple(calibrating[:limit]),
        texts=tuple(calibrating if texts is None else console.read_texts(texts)),
        seeds=_seeds(seeds),
        batch_size=batch_size,
    )


def _split(given: str, option: str) -> list[str]:
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        raise SpecError(f"{option} is empty; give names separated by commas")
    return names


def _seeds(given: str) -> tuple[int, ...]:
    names = _split(given, "--seeds")
    if not all(name.isdecimal() for name in names):
        raise SpecError(f"--seeds must be whole numbers separated by commas, got {given!r}")
    return tuple(dict.fromkeys(map(int, names)))


def _table(model: str, rows: list[dict[str, Any]]) -> Table:
    """Return one line per recipe; measures that no recipe has are left out."""
    from octavo.fidelity import read_measure

    shown = [name for name in _COLUMNS if any(read_measure(row, name) is not None for row in rows)]
    extra = any(row.get("extra_parameters") for row in rows)
    table = Table(title=model, title_justify="left")
    table.add_column("recipe", no_wrap=True)
    for name in shown:
        table.add_column(_COLUMNS[name][0], justify="right", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    if extra:
        table.add_column("extra parameters", justify="right")
    table.add_column("bits of activations")
    table.add_column("bits of weights")
    for row in rows:
        cells = [_cell(read_measure(row, name), _COLUMNS[name][1]) for name in shown]
        more = [_cell(row.get("extra_parameters") or None, ",")] if extra else []
        bits = [_bits(row.get(f"{kind}_bits")) for kind in ("activation", "weight")]
        table.add_row(row["recipe"], *cells, megabytes(row["bytes"]), *more, *bits)
    return table


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _bits(counts: dict[str, int] | None) -> str:
    """Return counts by bits as `75 x 8, 18 x 16`."""
    return "" if counts is None else ", ".join(f"{count} x {bits}" for bits, count in counts.items())
