"""`octavo reproduce`: the paper's tables by one command."""

from __future__ import annotations

import math
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.command import command
from octavo.cli.console import Console
from octavo.cli.options import DataOption, Device, DeviceOption

if TYPE_CHECKING:
    from octavo.experiments.cell import Cell
    from octavo.experiments.engine import Engine
    from octavo.experiments.laboratory import Place
    from octavo.experiments.settings import Settings

_HELP = """Run what is missing of one or several of the paper's tables.

Every cell, one row on one task by one seed, leaves one JSON file in the output folder; a run that was
stopped goes on where it was. FP32 fine-tuning comes first: quantization starts from the seed with the median
score of the best setting. Tables: initial, leave-one-out, mixed-precision, peg, main, low-bit, low-bit-full,
range-estimators, overview, or a YAML file. `octavo tables` renders the results.

Examples:

* `octavo reproduce initial --model demo:minilm --data glue -o results`
* `octavo reproduce main low-bit-full --model bert-base-uncased --data glue -o results --workers 8`
* `octavo reproduce peg --model demo:minilm --data glue -o results --task stsb --row w8a8-peg6`
* `octavo reproduce main --model bert-base-uncased --data /nfs/glue -o /nfs/out --engine ray --address auto`
"""


@command("reproduce", _HELP)
def _reproduce(
    current: Console,
    tables: Annotated[
        list[str],
        typer.Argument(metavar="TABLE", help="Names of tables, or YAML files.", show_default=False),
    ],
    model: Annotated[
        str, typer.Option("--model", metavar="MODEL", help="The pre-trained model.", show_default=False)
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Results folder, made or continued.", show_default=False
        ),
    ],
    data: DataOption = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", help="Only these tasks, such as stsb.", show_default="all")
    ] = None,
    row: Annotated[
        list[str] | None, typer.Option("--row", help="Only these rows, by name.", show_default="all")
    ] = None,
    only_seed: Annotated[
        list[int] | None, typer.Option("--only-seed", help="Only these seeds.", show_default="all")
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings",
            metavar="NAME|FILE",
            help="Hyper-parameters: paper, minilm or a YAML file.",
            show_default="by model",
        ),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="Where cells run: local or ray.")] = "local",
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Processes; they may share one GPU.", show_default="1"),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", help="Address of a Ray cluster.", show_default="a new local one"),
    ] = None,
    stop_after: Annotated[
        float | None,
        typer.Option(
            "--stop-after", min=1, metavar="SECONDS", help="Stop by then; resume later.", show_default="never"
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which cells are missing.")] = False,
    device: DeviceOption = Device.auto,
) -> None:
    with nullcontext():  # @command opens the console; the block keeps its depth until its body is settled
        from octavo.errors import SpecError
        from octavo.experiments import laboratory
        from octavo.experiments import reproduce as work
        from octavo.experiments.settings import load_settings, settings_for
        from octavo.experiments.table import load_table

        if engine not in ("local", "ray"):
            raise SpecError(f"unknown engine {engine!r}; use local or ray")
        chosen = settings_for(model) if settings is None else load_settings(settings)
        loaded = [load_table(name) for name in tables]
        place = laboratory.Place(
            model=model,
            data=None if data is None else str(data),
            output=str(output),
            device=device.value,
            tables=tuple(tables),
        )
        selection = work.Selection(
            tasks=tuple(task or ()), rows=tuple(row or ()), seeds=tuple(only_seed or ())
        )
        cells = work.plan(loaded, selection, chosen, place)
        store = work.find_store(place, chosen)
        missing = store.missing(cells)
        current.show(f"{len(cells)} cells, {len(missing)} to run, in {output}")
        if data is not None and (absent := work.missing_tasks(loaded, data)):
            current.warn(f"{data} has no files of {', '.join(absent)}; these tasks are left out")
        failed: dict[str, str] = {}
        if not dry_run:
            made = work.make_engine(engine, place, workers, address)
            failed = _run(current, cells, len(missing), place, chosen, made, stop_after or math.inf)
        left = store.missing(cells)
        current.show(
            f"{len(cells) - len(left)} of {len(cells)} cells are done; "
            f"render them with octavo tables {output}"
        )
        current.result({"cells": len(cells), "missing": [cell.path for cell in left], "failed": failed})
        if failed:
            from octavo.experiments.grid import failures_message

            raise failures_message(failed)


def _run(
    current: Console,
    cells: list[Cell],
    total: int,
    place: Place,
    settings: Settings,
    engine: Engine,
    stop_after: float,
) -> dict[str, str]:
    from octavo.experiments.reproduce import reproduce

    done = 0
    with current.progress("Running cells") as progress:

        def report(cell: Cell, score: float | None, failure: str | None) -> None:
            nonlocal done
            done += 1
            progress(done, total)
            found = f"failed: {failure}" if score is None else f"{score:.2f}"
            current.show(f"[{done}/{total}] {cell.path} {found}")

        return reproduce(cells, place, settings, engine, stop_after=stop_after, report=report)
