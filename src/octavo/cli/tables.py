"""`octavo tables`: results of `octavo reproduce` beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.cli.command import command
from octavo.cli.console import Console

if TYPE_CHECKING:
    from octavo.experiments.summary import Scores
    from octavo.experiments.table import Table

_BEGIN, _BEGIN_OF, _END = "<!-- tables -->", "<!-- tables of {} -->", "<!-- end of tables -->"
_HELP = """Render the results in a folder as Markdown tables beside the paper's numbers.

Each number is the median over seeds; where several hyper-parameters were tried, of the best of them. The
paper's number stands in brackets, below them the smallest and the largest score, and means are over the same
tasks. With -o, tables go to a file and a
figure beside it; in a file with the marks `<!-- tables -->` and `<!-- end of tables -->`, between these. A
page of several folders has marks that name them, `<!-- tables of minilm -->`.

Examples:

* `octavo tables results/minilm`
* `octavo tables results/minilm --table overview -o docs/results-tables.md`
"""


@command("tables", _HELP)
def _tables(
    console: Console,
    results: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of `octavo reproduce`.", show_default=False)
    ],
    table: Annotated[
        list[str] | None, typer.Option("--table", help="Only these tables.", show_default="all with results")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write Markdown here, figures beside it."),
    ] = None,
    details: Annotated[bool, typer.Option("--details", help="Add every score with its spread.")] = False,
    figures: Annotated[
        bool,
        typer.Option("--figures/--no-figures", help="Draw a figure of every table, beside the file of -o."),
    ] = True,
) -> None:
    from dataclasses import asdict

    from octavo.experiments.render import render_details, render_figure, render_table
    from octavo.experiments.results import read_results
    from octavo.experiments.summary import shown_tasks, summarize
    from octavo.experiments.table import load_table, table_names
    from octavo.files import write_file

    read = read_results(results)
    scores = summarize(read.all())
    chosen = [load_table(name) for name in table or table_names()]
    chosen = [each for each in chosen if table or _worth_showing(each, shown_tasks(each, scores), scores)]
    parts = [render_table(each, scores) for each in chosen]
    if details:
        parts.append("### Every score\n\n" + render_details(scores))
    text = "\n".join(parts)
    if not parts:
        have = "results of FP32 only" if scores else "no results yet"
        console.show(f"{results} has {have}; octavo reproduce adds to them")
    elif output is None:
        console.write(text)
    else:
        page, prefix = _placed(text, output, results.resolve().name)
        with write_file(output, force=True) as draft:
            draft.write_text(page, encoding="utf-8")
        for each in chosen if figures else ():
            with write_file(output.with_name(f"{prefix}-{each.name}.svg"), force=True) as draft:
                draft.write_text(render_figure(each, scores), encoding="utf-8")
        console.show(f"Wrote {output} with {len(chosen)} tables of {read.about['model']}")
    listed = [{"row": row, "task": task, **asdict(score)} for (row, task), score in scores.items()]
    console.result({"about": read.about, "scores": listed})


def _placed(text: str, file: Path, folder: str) -> tuple[str, str]:
    """Return the new content of a file and what its figures' names begin with.

    Tables stand between the marks of their folder, or those without a name, else alone.
    """
    old = file.read_text(encoding="utf-8") if file.is_file() else ""
    named = _BEGIN_OF.format(folder)
    before, begin, rest = old.partition(named if named in old else _BEGIN)
    _, end, after = rest.partition(_END)
    page = f"{before}{begin}\n\n{text}\n{end}{after}" if begin and end else text
    return page, f"{file.stem}-{folder}" if named in old else file.stem


def _worth_showing(table: Table, tasks: Sequence[str], scores: Scores) -> bool:
    """Return whether a table has more than its FP32 row."""
    return any(
        row.method != "finetune" and (row.name, task) in scores for row in table.rows for task in tasks
    )
