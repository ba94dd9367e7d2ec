"""Write the figure and the tables of docs/results.md: what each method costs on three models, and the ranges.

    python benchmarks/findings_table.py [--check]

Between `<!-- findings -->` and `<!-- end of findings -->` stands for each row the change of the mean against
the fine-tuned model, over the tasks that a row has: BERT-base as the paper has it, the others from results/.
Between `<!-- ranges -->` and its end stands the search of ranges on mpnet-base, by estimators alone, and
between `<!-- single -->` and its end the paper's own rows of tables 4 and 5.
`make tables` runs this and everything else that fills pages from results/.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from octavo.drawing import Drawing
from octavo.experiments.results import read_results
from octavo.experiments.summary import RowScore, mean_change, summarize
from octavo.experiments.table import TableRow, load_table
from octavo.tasks.glue import GLUE

ROOT = Path(__file__).parents[1]
PAGE, FIGURE = ROOT / "docs" / "results.md", ROOT / "docs" / "results-findings.svg"
MARKS = r"(<!-- {0} -->\n).*?(<!-- end of {0} -->)"
SEARCHED = "mpnet-base"
TASKS = ("cola", "sst2", "mrpc", "stsb", "qnli")
MODELS = {"minilm": "MiniLM, 6 x 384", "mpnet-base": "mpnet-base, 12 x 768"}
KINDS = ("quiet", "bar", "hot")
# in the order of the argument: the disease, the paper's cures, ours, weights, training
ROWS = (
    *(
        "w8a8",
        "w8a8-best",
        "w8a8-mp",
        "w8a8-mp-single",
        "w8a8-per-embedding",
        "w8a8-peg6",
        "w8a8-peg6-single",
        "int8-full",
        "int8",
        "int8-small",
        "fp8-full",
        "fp8",
    ),
    *(
        "w8a32",
        "int8-weights",
        "w6a6",
        "w4a32",
        "w4a32-adaround",
        "w4a32-adaround-rows",
        "w4a32-gptq-rows",
        "w4a8",
    ),
    *("w8a8-qat", "w8a8-qat-mse", "w4a8-qat", "w4a8-e2-qat", "w8a8-distilled", "w4a8-distilled"),
)
# bars end here: one model loses so much that the others' could not be told apart
LONGEST = 12.0


class Change(NamedTuple):
    """What a row changes against the fine-tuned model, in points; over which tasks."""

    points: float
    tasks: list[str]

    def __str__(self) -> str:
        return f"{self.points:+.2f}"


Source = Callable[[TableRow], Change | None]


def shown(row: TableRow) -> list[str]:
    """Return the tasks of a row: of one sequence STS-B has one score, and nothing beyond it in its range."""
    return [task for task in TASKS if row.ranges != "single" or task != "stsb"]


def measured(folder: str, base: TableRow) -> Source:
    """Return what tells a row's change in a folder of results."""
    scores = summarize(read_results(ROOT / "results" / folder).all())

    def change(row: TableRow) -> Change | None:
        tasks = [task for task in shown(row) if (row.name, task) in scores]
        points = mean_change(row, base, tasks, scores)
        return None if points is None else Change(points, tasks)

    return change


def cited(float_row: TableRow) -> Source:
    """Return what tells a row's change in the paper, where it has all five tasks."""

    def change(row: TableRow) -> Change | None:
        tasks = shown(row)
        if not set(tasks) <= set(row.paper):
            return None
        return Change(sum(row.paper[task] - float_row.paper[task] for task in tasks) / len(tasks), tasks)

    return change


def cell(change: Change | None) -> str:
    """Return a change with the tasks it is the mean of, unless these are all five."""
    if change is None:
        return "-"
    names = [next(each.folder for each in GLUE.values() if each.config == task) for task in change.tasks]
    return str(change) + ("" if len(names) == len(TASKS) else f" ({', '.join(names)})")


def drawn(titles: list[str], rows: list[tuple[str, list[Change | None]]]) -> str:
    """Return an SVG: for every row of the table a bar for each model."""
    shown = [change.points for _, changes in rows for change in changes if change]
    least, most = max(min(shown), -LONGEST), max(*shown, 0.0)
    left, width, bar = 300.0, 350.0, 13.0
    scale = width / (most - least)
    counts = [sum(change is not None for change in changes) for _, changes in rows]
    zero, height = left - least * scale, 62 + sum(bar * max(count, 1.3) + 9 for count in counts)
    caption = "What each method changes against FP32, in points of the mean score"
    drawing = Drawing(720, height, caption)
    drawing.text(8, 20, caption, "head")
    for number, (title, kind) in enumerate(zip(titles, KINDS, strict=True)):
        drawing.rect(8 + 220 * number, 32, 11, 11, kind)
        drawing.text(24 + 220 * number, 41, title, "label")
    y = 60.0
    for count, (title, changes) in zip(counts, rows, strict=True):
        drawing.text(left - 8, y + bar * count / 2 + 3, title.replace("`", ""), "label", "end")
        pairs = [(change, kind) for change, kind in zip(changes, KINDS, strict=True) if change is not None]
        for offset, (change, kind) in enumerate(pairs):
            end, top = zero + max(change.points, least) * scale, y + bar * offset
            drawing.rect(min(zero, end), top, abs(end - zero), bar - 2, kind)
            if change.points < least:  # a gap in the bar: it goes on
                drawing.rect(end + 8, top, 4, bar - 2, "page")
            drawing.text(left + width + 6, top + 9, str(change), "label")
        y += bar * max(count, 1.3) + 9
    drawing.line(zero, 52, zero, height - 8, "axis")
    return drawing.document()


def findings() -> tuple[str, str]:
    """Return the table and the figure."""
    known = {
        row.name: row for name in ("initial", "main", "overview", "ours") for row in load_table(name).rows
    }
    sources = [cited(known["fp32"]), *(measured(folder, known["fp32"]) for folder in MODELS)]
    titles = ["BERT-base, 12 x 768 (the paper)", *MODELS.values()]
    rows = [(known[name].title, [source(known[name]) for source in sources]) for name in ROWS]
    rows = [(title, changes) for title, changes in rows if any(changes[1:])]
    lines = ["| | " + " | ".join(titles) + " |", "|---" + "|---:" * len(titles) + "|"]
    lines += [f"| {title} | " + " | ".join(map(cell, changes)) + " |" for title, changes in rows]
    return "\n".join(lines) + "\n", drawn(titles, rows)


def searched() -> str:
    """Return the search of ranges: for each pair of estimators the best and the worst of its settings."""
    scores = summarize(read_results(ROOT / "results" / SEARCHED).all())
    groups: dict[tuple[str, str], list[list[float]]] = {}
    for row in load_table("range-estimators").rows:
        if all((row.name, task) in scores for task in TASKS):
            found = [scores[row.name, task].median for task in TASKS]
            pair = str(row.estimators["weights"]), str(row.estimators["activations"])
            groups.setdefault(pair, []).append([*found, sum(found) / len(found)])
    titles = [next(each.folder for each in GLUE.values() if each.config == task) for task in TASKS]
    lines = ["| weights | activations | settings | " + " | ".join([*titles, "mean"]) + " |"]
    lines.append("|---|---|" + "---:|" * (len(TASKS) + 2))
    for (weights, activations), rows in groups.items():
        cells = [f"{max(column):.2f} ({min(column):.2f})" for column in zip(*rows, strict=True)]
        lines.append(f"| `{weights}` | `{activations}` | {len(rows)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def own_way() -> str:
    """Return the rows of tables 4 and 5 with the presets' ranges and with the paper's, on two tasks."""
    scores = summarize(read_results(ROOT / "results" / SEARCHED).all())
    rows = {row.name: (row, f"groups: {row.title}") for row in load_table("peg").rows}
    rows = {row.name: (row, row.title) for row in load_table("mixed-precision").rows} | rows
    rows["w8a8"] = rows["w8a8"][0], "W8A8 PTQ"
    head = ("presets", "the paper's way", "the paper, BERT-base")
    lines = ["| | " + " | ".join(f"{task}, {each}" for task in ("QNLI", "STS-B") for each in head) + " |"]
    lines.append("|---" + "|---:" * 2 * len(head) + "|")
    for name, (row, title) in rows.items():
        keys = [(each, task) for task in ("qnli", "stsb") for each in (name, f"{name}-single")]
        if all(key in scores for key in keys):
            mine = [ranged(scores[key]) for key in keys]
            cells = [*mine[:2], f"{row.paper['qnli']:.2f}", *mine[2:], f"{row.paper['stsb']:.2f}"]
            lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def ranged(score: RowScore) -> str:
    """Return a median and, where seeds differ by points, the smallest and the largest."""
    return f"{score.median:.2f}" + (
        f" ({score.low:.1f} to {score.high:.1f})" if score.high - score.low >= 2 else ""
    )


def main() -> None:
    """Fill the page in and draw the figure, or say that they are not what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page differs")
    check = parser.parse_args().check
    table, figure = findings()
    text = PAGE.read_text(encoding="utf-8")
    new = text
    for name, written in (("findings", table), ("ranges", searched()), ("single", own_way())):
        mark = re.compile(MARKS.format(name), flags=re.DOTALL)
        new = mark.sub(lambda found, written=written: found[1] + written + found[2], new)  # type: ignore[misc]
    if check and (new != text or figure != FIGURE.read_text(encoding="utf-8")):
        sys.exit(f"{PAGE.name} or {FIGURE.name} is not what results/ say; run {Path(__file__).name}")
    PAGE.write_text(new, encoding="utf-8")
    FIGURE.write_text(figure, encoding="utf-8")


if __name__ == "__main__":
    main()
