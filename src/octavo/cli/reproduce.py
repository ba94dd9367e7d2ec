"""`octavo reproduce`: the paper's tables by one command."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.command import command
from octavo.cli.console import Console
from octavo.cli.options import DataOption, Device, DeviceOption, PrecisionOption

if TYPE_CHECKING:
    from octavo.experiments.cell import Cell
    from octavo.experiments.engine import Engine
    from octavo.experiments.planning import Plan
    from octavo.experiments.runner import RunConfiguration

_HELP = """Run what is missing of one or several of the paper's tables.

Every cell, one row on one task by one seed, leaves one JSON file in the output folder; a run that was
stopped resumes where it was. FP32 fine-tuning comes first: quantization starts from the seed with the median
score of the best setting. With `--only-seed` only these seeds are fine-tuned, unless the folder has chosen
its start already; `--start-seed` names another. Tables: initial, leave-one-out, mixed-precision, peg, main,
low-bit, low-bit-full, range-estimators, overview, ours, or a YAML file. The model's architecture
and size choose the settings, unless `--settings` does. Fine-tuned models are kept beside the results, or in a
folder that can be carried to another machine (`--starts`). `octavo tables` renders the results.

Examples:

* `octavo reproduce initial --model demo:minilm --data glue -o results`
* `octavo reproduce main low-bit-full --model bert-base-uncased --data glue -o results --workers 8`
* `octavo reproduce peg --model demo:minilm --data glue -o results --task stsb --row w8a8-peg6`
* `octavo reproduce main --model bert-base-uncased --data /nfs/glue -o /nfs/out --engine ray --address auto`
"""


@command("reproduce", _HELP)
def _reproduce(
    console: Console,
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
    start_seed: Annotated[
        int | None,
        typer.Option(
            "--start-seed",
            min=0,
            help="Quantize the model fine-tuned with this seed.",
            show_default="the median",
        ),
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            "--settings",
            metavar="NAME|FILE",
            help="Hyper-parameters: paper, paper-search, minilm, mpnet or a YAML file.",
            show_default="by model",
        ),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="Where cells run: local or ray.")] = "local",
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, help="Processes; they may share one GPU.", show_default="1"),
    ] = None,
    trainings: Annotated[
        int | None,
        typer.Option(
            "--trainings",
            min=1,
            help="At most so many of them train at once; the others run rows after training.",
            show_default="all",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", help="Address of a Ray cluster.", show_default="a new local one"),
    ] = None,
    stop_after: Annotated[
        float | None,
        typer.Option(
            "--stop-after",
            min=1,
            metavar="SECONDS",
            help="Stop by then; run again to resume.",
            show_default="never",
        ),
    ] = None,
    starts: Annotated[
        Path | None,
        typer.Option(
            "--starts",
            metavar="DIR",
            help="Fine-tuned models, used and added to.",
            show_default="beside the results",
        ),
    ] = None,
    mixed_precision: PrecisionOption = "no",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the cells that are missing, and how long they take.")
    ] = False,
    device: DeviceOption = Device.auto,
) -> None:
    began = time.monotonic()
    from octavo.errors import SpecError
    from octavo.experiments import planning
    from octavo.experiments.runner import RunConfiguration
    from octavo.experiments.settings import load_settings
    from octavo.experiments.table import load_table

    if engine not in ("local", "ray"):
        raise SpecError(f"unknown engine {engine!r}; use local or ray")
    chosen, why = planning.choose_settings(model) if settings is None else (load_settings(settings), None)
    loaded = [load_table(name) for name in tables]
    configuration = RunConfiguration(
        model=model,
        data=None if data is None else str(data),
        output=str(output),
        device=device.value,
        settings=chosen.name,
        start_seed=start_seed,
        tables=tuple(tables),
        starts=None if starts is None else str(starts),
        precision=mixed_precision,
    )
    selection = planning.Selection(
        tasks=tuple(task or ()),
        rows=tuple(row or ()),
        seeds=tuple(only_seed or ()),
    )
    plan = planning.plan(loaded, selection, chosen, configuration)
    if why is not None:
        console.note(why)
    _show_plan(console, plan, configuration)
    if data is not None and (absent := planning.missing_tasks(loaded, data)):
        console.warn(f"{data} has no files of {', '.join(absent)}; these tasks are left out")
    failed: dict[str, str] = {}
    document = {"cells": len(plan.cells), "settings": chosen.name, "impossible": dict(plan.impossible)}
    if dry_run:
        document |= _show_estimates(console, plan, configuration)
    else:
        made = planning.make_engine(engine, configuration, workers, address)
        left_over = math.inf if stop_after is None else began + stop_after - time.monotonic()
        failed = _run(console, plan, configuration, made, left_over, trainings)
    undone = configuration.results().missing(plan.cells)
    done = f"{len(plan.cells) - len(undone)} of {len(plan.cells)} cells are done"
    console.show(f"{done}; render them with octavo tables {output}")
    missing = [cell.path for cell in undone if cell not in plan.known]
    console.result({**document, "missing": missing, "failed": failed})
    if failed:
        from octavo.experiments.grid import failures_message

        raise failures_message(failed)


def _show_plan(console: Console, plan: Plan, configuration: RunConfiguration) -> None:
    """Say how many cells there are, how many are to run, and which rows are left out."""
    for name, reason in plan.impossible.items():
        console.warn(f"{configuration.model} cannot have the row {name}: {reason}")
    console.show(f"{len(plan.cells)} cells, {len(plan.missing)} to run, in {configuration.output}")
    if plan.known:
        console.note(
            f"{len(plan.known)} more are experiments that other rows have done or will do, "
            "whose results they take"
        )


def _show_estimates(console: Console, plan: Plan, configuration: RunConfiguration) -> dict[str, Any]:
    """List the cells to run, and how long they take one after another; return that as plain data."""
    from octavo.experiments.estimate import count_steps, estimate, total_seconds

    results = configuration.results()
    estimates = estimate(plan.missing, results.all(), count_steps(plan.missing, results, configuration.data))
    total = total_seconds(estimates)
    for each in estimates:
        steps = f", {each.steps} steps" if each.steps else ""
        seconds = "" if each.seconds is None else f", about {_duration(each.seconds)}"
        console.show(f"{each.cell.path}{steps}{seconds}")
    if estimates and total is not None:
        console.show(
            f"About {_duration(total)} one after another, on a machine like that of the results here."
        )
    elif estimates:
        unknown = sum(each.seconds is None for each in estimates)
        console.show(
            f"The time of {unknown} cells is not known before one of their kind has run in this folder; "
            f"training takes {sum(each.steps for each in estimates)} steps in all."
        )
    return {"plan": [each.to_dict() for each in estimates], "seconds": total}


def _duration(seconds: float) -> str:
    """Return a duration in the unit that suits it."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}" if seconds >= 10 * size else f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"


def _run(
    console: Console,
    plan: Plan,
    configuration: RunConfiguration,
    engine: Engine,
    stop_after: float,
    trainings: int | None,
) -> dict[str, str]:
    """Run what is missing, and say what came out of each cell; return the failures."""
    from octavo.experiments.planning import reproduce

    done, total = 0, len(plan.missing)
    with console.progress("Running cells") as progress:

        def report(cell: Cell, score: float | None, failure: str | None) -> None:
            nonlocal done
            done += 1
            progress(done, total)
            outcome = f"failed: {failure}" if score is None else f"{score:.2f}"
            console.show(f"[{done}/{total}] {cell.path} {outcome}")

        return reproduce(
            plan.cells, configuration, engine, stop_after=stop_after, report=report, trainings=trainings
        )
