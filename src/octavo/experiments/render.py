"""Tables in Markdown, ours beside the paper's, and a figure of what each method loses."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.experiments.summary import Scores, mean_score, paper_mean, shown_tasks
from octavo.experiments.table import Table, TableRow
from octavo.tasks.glue import GLUE

_NONE = "-"


def render_table(table: Table, scores: Scores) -> str:
    """Return a Markdown table: our score, the paper's in brackets; rows without any result are left out."""
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
        cells.append(_both(None if score is None else score.median, row.paper.get(task)))
    ours, paper = mean_score(row, tasks, scores), paper_mean(row, tasks)
    cells.append(_both(ours, paper))
    if base is None or row is base:
        return [*cells, ""]
    ours_base, paper_base = mean_score(base, tasks, scores), paper_mean(base, tasks)
    return [*cells, _both(_minus(ours, ours_base), _minus(paper, paper_base), signed=True)]


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
        ours = _minus(mean_score(row, tasks, scores), mean_score(base, tasks, scores))
        if ours is not None:
            bars.append((row.title, ours, _minus(paper_mean(row, tasks), paper_mean(base, tasks))))
    return _svg(table.title, bars)


def _svg(title: str, bars: Sequence[tuple[str, float, float | None]]) -> str:
    values = [value for _, ours, paper in bars for value in (ours, paper) if value is not None]
    least, most = min([*values, 0.0]), max([*values, 0.0])
    left, width, step = 230, 420, 34
    scale = width / max(most - least, 1e-9)
    zero = left - least * scale
    parts = []
    for index, (name, ours, paper) in enumerate(bars):
        y = 40 + index * step
        parts.append(f'<text x="{left - 8}" y="{y + 17}" text-anchor="end">{_escape(name)}</text>')
        for offset, value, colour in ((2, ours, "#2b6cb0"), (15, paper, "#b9c4d0")):
            if value is not None:
                x, size = min(zero, zero + value * scale), abs(value) * scale
                parts.append(
                    f'<rect x="{x:.1f}" y="{y + offset}" width="{size:.1f}" height="11" fill="{colour}"/>'
                )
                parts.append(
                    f'<text x="{left + width + 6}" y="{y + offset + 10}" fill="{colour}">{value:+.2f}</text>'
                )
    height = 50 + step * len(bars)
    caption = f"{_escape(title)}: mean against FP32, ours (blue) and the paper"
    head = f'<text x="8" y="20" font-weight="bold">{caption}</text>'
    axis = f'<line x1="{zero:.1f}" y1="34" x2="{zero:.1f}" y2="{height - 8}" stroke="#555"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="720" height="{height}" '
        'font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>{head}{"".join(parts)}{axis}</svg>\n'
    )


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
