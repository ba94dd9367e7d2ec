"""Tables in Markdown, ours beside the paper's, and a figure of what each method loses."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.drawing import Drawing
from octavo.experiments.summary import RowScore, Scores, mean_change, mean_score, paper_mean, shown_tasks
from octavo.experiments.table import Table, TableRow
from octavo.tasks.glue import GLUE

_NONE = "-"


def render_table(table: Table, scores: Scores) -> str:
    """Return a Markdown table: our score, the paper's in brackets, below them the spread over seeds.

    The last column is against the fine-tuned model that a row starts from, the paper's against its FP32. Rows
    without any result are left out.
    """
    tasks = shown_tasks(table, scores)
    rows = [row for row in table.rows if any((row.name, task) in scores for task in tasks)]
    if not rows:
        return f"### {table.title}\n\nNo results yet.\n"
    head = ["", *(_title(task) for task in tasks), "mean", "to FP32"]
    lines = [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    base = next((row for row in table.rows if row.method == "finetune"), None)
    lines += [_line(_cells(row, tasks, scores, base)) for row in rows]
    notes = f"\n{table.notes.strip()}\n" if table.notes else ""
    return f"### {table.title} ({table.source})\n\n" + "\n".join(lines) + "\n" + notes


def _cells(row: TableRow, tasks: Sequence[str], scores: Scores, base: TableRow | None) -> list[str]:
    cells = [row.title]
    for task in tasks:
        score = scores.get((row.name, task))
        cells.append(_both(None if score is None else score.median, row.paper.get(task)) + _spread(score))
    ours, paper = mean_score(row, tasks, scores), paper_mean(row, tasks)
    cells.append(_both(ours, paper))
    if base is None or row is base:
        return [*cells, ""]
    change = mean_change(row, base, tasks, scores)
    return [*cells, _both(change, _minus(paper, paper_mean(base, tasks)), signed=True)]


def _spread(score: RowScore | None) -> str:
    """Return the smallest and the largest score of several seeds, on a line of its own."""
    if score is None or score.seeds < 2 or score.low == score.high:
        return ""
    return f"<br>{score.low:.2f} to {score.high:.2f}"


def _title(task: str) -> str:
    return next((each.folder for each in GLUE.values() if each.config == task), task)


def _minus(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else first - second


def _both(ours: float | None, paper: float | None, signed: bool = False) -> str:
    form = "{:+.2f}" if signed else "{:.2f}"
    left = _NONE if ours is None else form.format(ours)
    return left if paper is None else f"{left} ({form.format(paper)})"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def render_details(scores: Scores) -> str:
    """Return a Markdown table of every score: median, smallest, largest, seeds and the best setting."""
    head = ["row", "task", "median", "min", "max", "seeds", "learning rate", "batch", "epochs"]
    lines = [_line(head), _line(["---", "---", *["---:"] * (len(head) - 2)])]
    for (row, task), score in scores.items():
        setting = score.setting or {}
        rate = f"{setting['learning_rate']:g}" if setting else ""
        numbers = [f"{value:.2f}" for value in (score.median, score.low, score.high)]
        name = _title(task) + ("*" if score.partial else "")
        rest = [rate, str(setting.get("batch_size", "")), str(setting.get("epochs", ""))]
        lines.append(_line([row, name, *numbers, str(score.seeds), *rest]))
    return "\n".join(lines) + "\n\n\\* trained or scored on a part of the task's published data\n"


def render_figure(table: Table, scores: Scores) -> str:
    """Return an SVG: for each row the change of the mean against FP32, ours and the paper's."""
    tasks = shown_tasks(table, scores)
    base = next((row for row in table.rows if row.method == "finetune"), None)
    bars: list[tuple[str, float, float | None]] = []
    for row in table.rows:
        if base is None or row is base:
            continue
        ours = mean_change(row, base, tasks, scores)
        if ours is not None:
            bars.append((row.title, ours, _minus(paper_mean(row, tasks), paper_mean(base, tasks))))
    return _draw(table.title, bars).document()


def _draw(title: str, bars: Sequence[tuple[str, float, float | None]]) -> Drawing:
    """Draw two bars for every row, ours above the paper's, with their values at the right."""
    values = [value for _, ours, paper in bars for value in (ours, paper) if value is not None]
    least, most = min([*values, 0.0]), max([*values, 0.0])
    left, width, step = 230.0, 420.0, 34.0
    scale = width / max(most - least, 1e-9)
    zero = left - least * scale
    height = 50 + step * len(bars)
    caption = f"{title}: mean against FP32, ours (blue) and the paper"
    drawing = Drawing(720, height, caption)
    drawing.text(8, 20, caption, "head")
    for number, (name, ours, paper) in enumerate(bars):
        y = 40 + number * step
        drawing.text(left - 8, y + 17, name, "label", "end")
        for offset, value, kind in ((2, ours, "bar"), (15, paper, "quiet")):
            if value is not None:
                drawing.rect(min(zero, zero + value * scale), y + offset, abs(value) * scale, 11, kind)
                drawing.text(left + width + 6, y + offset + 9, f"{value:+.2f}", "label")
    drawing.line(zero, 34, zero, height - 8, "axis")
    return drawing
