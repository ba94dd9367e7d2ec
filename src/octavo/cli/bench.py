"""`octavo bench`: latency, throughput, memory, size and fidelity, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from octavo.cli.command import command
from octavo.cli.console import Console
from octavo.cli.export import Runtime
from octavo.cli.options import TEXT_FILE, ForceOption
from octavo.cli.tasks import DataOption, LabelOption, TaskChoice, TaskOption, TextOption
from octavo.errors import DataError
from octavo.runtime.backends import DEFAULT

if TYPE_CHECKING:
    from octavo.runtime.benchmark import Benchmark, Row
    from octavo.runtime.invariance import Invariance
    from octavo.runtime.quality import Reader

_OF_HEADS = {
    "neighbours": "neighbours",
    "rank_correlation": "ranks",
    "entities": "entities",
    "spans": "answers",
}
"""Measures that only some heads have, and their columns."""

_HELP = """Measure models and exported files against each other.

An artifact is a MODEL as for the other commands, an ONNX file, which runs in every `--runtime` given (or in
one, as `FILE@openvino`), or an XML file of OpenVINO. A folder that Octavo saved is *simulated*: its latency
is not that of a deployed model, and the table says so. Artifacts take turns at every shape, so that a busy
machine slows all of them alike; cosine and agreement are against the first. With a task (`--task`, or your
own `--data`), its score stands beside them.

`--invariance` measures something else: how many texts get another result in another batch, with more padding,
in another order or on other threads than alone, which static ranges prevent. A float MODEL is measured as a
file, and so is ONNX Runtime's own dynamic int8 of it. `--batches` and `--lengths` then are the sizes of
batches (2,8,32,64) and the tokens to pad to (128,512).

Examples:

* `octavo bench demo:minilm minilm-int8.onnx`
* `octavo bench minilm-int8.onnx minilm-ov.onnx@openvino --tokenizer minilm-int8`
* `octavo bench demo:minilm minilm-int8.onnx minilm-ov.onnx@openvino --lengths 32,128 -o bench`
* `octavo bench stars stars-int8.onnx --data test.csv --text review --label stars`
* `octavo bench --invariance demo:minilm minilm-int8.onnx`
"""

_INVARIANCE_TEXTS = 64
"""Of the demo's own texts: padding each of them takes a while."""


@command("bench", _HELP)
def _bench(
    console: Console,
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL...", help="Models and ONNX files; the first is the reference."),
    ],
    runtime: Annotated[
        list[Runtime] | None,
        typer.Option(
            "--backend",
            "--runtime",
            help="Where ONNX files run; may be given more than once.",
            show_default=DEFAULT,
        ),
    ] = None,
    invariance: Annotated[
        bool,
        typer.Option(
            "--invariance", help="Count the texts whose results change with batch, padding, threads."
        ),
    ] = False,
    batches: Annotated[
        str | None,
        typer.Option("--batches", metavar="N,N", help="Texts per batch.", show_default="1,32"),
    ] = None,
    lengths: Annotated[
        str | None,
        typer.Option("--lengths", metavar="N,N", help="Tokens per text.", show_default="32,128"),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts",
            metavar="FILE",
            help=f"Texts to compare outputs on: {TEXT_FILE}.",
            show_default="the demo's texts",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            metavar="MODEL",
            help="Folder or model whose tokenizer cuts the texts.",
            show_default="the first model's, or one beside a file",
        ),
    ] = None,
    task: TaskOption = None,
    data: DataOption = None,
    text: TextOption = None,
    label: LabelOption = None,
    threads: Annotated[int, typer.Option("--threads", min=1, help="CPU threads to use.")] = 2,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", min=0.0, help="Time to spend on each artifact at each shape.", show_default="2"
        ),
    ] = None,
    memory: Annotated[
        bool | None,
        typer.Option("--memory/--no-memory", help="Measure peak memory too.", show_default="memory"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Also write bench.json and bench.svg.", show_default=False
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    from octavo.files import check_output
    from octavo.runtime.benchmark import bench
    from octavo.runtime.quality import can_read_texts

    choice = TaskChoice(task=task, data=data, text=text or (), label=label or ())
    choice.check()
    if output is not None:
        check_output(output, force)
    chosen = _read_texts(console, texts)
    backends = [str(each) for each in runtime or [DEFAULT]]
    if invariance:
        unread = {"--seconds": seconds, "--memory": memory, "--task": task, "--data": data}
        return _show_invariance(
            console,
            [option for option, value in unread.items() if value is not None],
            output,
            force,
            models=models,
            texts=chosen if texts is not None else chosen[:_INVARIANCE_TEXTS],
            backends=backends,
            tokenizer=tokenizer,
            batch_sizes=None if batches is None else _numbers("--batches", batches),
            lengths=None if lengths is None else _numbers("--lengths", lengths),
            threads=threads,
        )
    sizes, tokens = _numbers("--batches", batches or "1,32"), _numbers("--lengths", lengths or "32,128")
    shapes = [(size, length) for size in sizes for length in tokens]
    if texts is None and tokenizer is None and not can_read_texts(models):
        console.warn(
            "No tokenizer lies beside the files, so outputs are not compared; give --tokenizer MODEL."
        )
        chosen = []
    with console.progress("Measuring") as progress:
        measured = bench(
            models,
            backends=backends,
            shapes=shapes,
            texts=chosen,
            tokenizer=tokenizer,
            threads=threads,
            seconds=2.0 if seconds is None else seconds,
            memory=memory is not False,
            score=_score(choice),
            progress=progress,
        )
    console.show(_table(measured))
    if any(row.kind == "simulated" for row in measured.rows):
        console.show("Simulated rows round floats to where integers would be; their latency means nothing.")
    if output is not None:
        _write(measured, output, max(shapes), force)
    console.result(measured.to_dict())


def _score(choice: TaskChoice) -> Callable[[Reader], float] | None:
    if not choice:
        return None
    from octavo.tasks.scorer import task_scorer

    def score(model: Reader) -> float:
        return task_scorer(choice.find(model.head), choice.data if choice.is_glue else None)(model)

    return score


def _show_invariance(
    console: Console, unread: list[str], output: Path | None, force: bool, **options: Any
) -> None:
    from octavo.files import write_folder
    from octavo.runtime.invariance import measure_invariance
    from octavo.versions import processor, versions

    if unread:
        raise DataError(f"--invariance does not read {', '.join(unread)}; drop it")
    given = {name: value for name, value in options.items() if value is not None}
    with console.progress("Measuring") as progress:
        measured = measure_invariance(given.pop("models"), given.pop("texts"), progress=progress, **given)
    console.show(_invariance_table(measured))
    console.show(
        "Changed: in one bit or more. Moved: by more than 0.00001 somewhere in the vector or logits."
    )
    found = {**measured.to_dict(), "processor": processor(), "versions": versions()}
    if output is not None:
        with write_folder(output, force) as draft:
            (draft / "invariance.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    console.result(found)


def _invariance_table(measured: Invariance) -> Table:
    table = Table(
        title=f"{measured.texts} texts, each against its result alone: changed, moved, worst cosine"
    )
    table.add_column("circumstance")
    for row in measured.rows:
        table.add_column(row.name, justify="right")
    for changes in zip(*(row.changes for row in measured.rows), strict=True):
        cells = [f"{each.changed}, {each.moved}, {each.worst:.4f}" for each in changes]
        table.add_row(changes[0].circumstance, *cells)
    return table


def _numbers(option: str, given: str) -> list[int]:
    try:
        return [int(part) for part in given.split(",")]
    except ValueError as error:
        raise DataError(f"{option} must be numbers with commas between them, got {given!r}") from error


def _read_texts(console: Console, file: Path | None) -> list[Any]:
    from octavo.tasks.demo import split_demo_texts

    return list(split_demo_texts()[1] if file is None else console.read_texts(file))


def _table(measured: Benchmark) -> Table:
    table = Table(title=f"{measured.threads} threads, cosine on {measured.texts} texts")
    columns = ["artifact", "arithmetic", "MB", "peak MB"]
    columns += [f"ms {timing.batch} x {timing.length}" for timing in measured.rows[0].timings]
    scores = ["score"] if any(row.score is not None for row in measured.rows) else []
    qualities = [row.quality for row in measured.rows]
    measures = [name for name in _OF_HEADS if any(getattr(q, name, None) is not None for q in qualities)]
    titles = [_OF_HEADS[name] for name in measures]
    for column in [*columns, "texts/s", "cosine", "worst", "agreement", *titles, *scores]:
        table.add_column(column, justify="left" if column in columns[:2] else "right")
    for row in measured.rows:
        table.add_row(*_cells(row, measures))
    return table


def _cells(row: Row, measures: Sequence[str]) -> list[str]:
    def shown(value: float | None, digits: int) -> str:
        return "" if value is None else f"{value:.{digits}f}"

    quality = row.quality
    cosine = quality.cosine if quality else None
    return [
        row.name,
        row.kind,
        shown(row.megabytes, 1),
        shown(row.peak_megabytes, 0),
        *(shown(timing.median_ms, 2) for timing in row.timings),
        shown(max(timing.texts_per_second for timing in row.timings), 0),
        shown(cosine.mean if cosine else None, 4),
        shown(cosine.worst if cosine else None, 4),
        shown(quality.agreement if quality else None, 3),
        *(shown(getattr(quality, name, None), 3) for name in measures),
        *([] if row.score is None else [shown(row.score, 2)]),
    ]


def _write(measured: Benchmark, folder: Path, shape: tuple[int, int], force: bool) -> None:
    from octavo.files import write_folder
    from octavo.runtime.plot import write_plot

    with write_folder(folder, force) as draft:
        (draft / "bench.json").write_text(json.dumps(measured.to_dict(), indent=1) + "\n", encoding="utf-8")
        write_plot(measured, draft / "bench.svg", shape)
