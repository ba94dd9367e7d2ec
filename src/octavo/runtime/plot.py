"""Quality against speed as one figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from octavo.drawing import Drawing
from octavo.runtime.benchmark import Benchmark, Row

_WIDTH, _HEIGHT = 760.0, 440.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 80.0, _WIDTH - 220.0, 50.0, _HEIGHT - 60.0
_KINDS = {"float": "bar", "simulated": "quiet", "integer": "hot"}
_STEPS = 4
_LETTER, _LINE = 6.3, 14.0  # about how wide a letter and how high a line of text is


def write_plot(benchmark: Benchmark, path: Path, shape: tuple[int, int], force: bool = False) -> Path:
    """Write texts per second at `shape` against mean cosine to the first artifact."""
    draw(benchmark.rows, shape).write(path, force)
    return path


def draw(rows: Sequence[Row], shape: tuple[int, int]) -> Drawing:
    """Draw a dot for every artifact that has a cosine, with its name."""
    points = [
        (row, row.at(*shape).texts_per_second, row.quality.cosine.mean)
        for row in rows
        if row.quality is not None and row.quality.cosine is not None
    ]
    fastest = max((speed for _, speed, _ in points), default=1.0) * 1.05
    lowest = min([cosine for _, _, cosine in points] + [0.99])
    floor = math.floor(lowest * 100) / 100
    title = f"Quality against speed, batches of {shape[0]} x {shape[1]} tokens"
    drawing = Drawing(_WIDTH, _HEIGHT, title)
    _draw_axes(drawing, title, fastest, floor)
    dots = []
    for row, speed, cosine in points:
        x = _LEFT + speed / fastest * (_RIGHT - _LEFT)
        y = _TOP + (1 - cosine) / max(1 - floor, 1e-9) * (_BOTTOM - _TOP)
        drawing.circle(x, y, 5, _KINDS[row.kind], f"{speed:.0f} texts per second, cosine {cosine:.4f}")
        dots.append((x, y, row.name + (" (simulated)" if row.kind == "simulated" else "")))
    _draw_labels(drawing, dots)
    return drawing


def _draw_labels(drawing: Drawing, dots: Sequence[tuple[float, float, str]]) -> None:
    """Write a name beside every dot, where it covers no other dot or name: right, left, or a line away."""
    taken = [(x - 5, x + 5, y) for x, y, _ in dots]
    for x, y, name in dots:
        wide = _LETTER * len(name)
        sides = [(x + 9, x + 9 + wide, y + down) for down in (0, _LINE, -_LINE, 2 * _LINE)]
        sides.insert(1, (x - 9 - wide, x - 9, y))
        free = [side for side in sides if not any(_overlap(side, other) for other in taken)]
        left, right, level = (free or sides)[0]
        taken.append((left, right, level))
        drawing.text(left if left > x else right, level + 4, name, "label", "start" if left > x else "end")


def _overlap(one: tuple[float, float, float], other: tuple[float, float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1] and abs(one[2] - other[2]) < _LINE


def _draw_axes(drawing: Drawing, title: str, fastest: float, floor: float) -> None:
    drawing.text(_LEFT, 24, title, "head")
    drawing.text((_LEFT + _RIGHT) / 2, _HEIGHT - 16, "texts per second", "label", "middle")
    drawing.text(_LEFT, _TOP - 10, "cosine", "label", "middle")
    for step in range(_STEPS + 1):
        share = step / _STEPS
        x, y = _LEFT + share * (_RIGHT - _LEFT), _BOTTOM - share * (_BOTTOM - _TOP)
        drawing.line(_LEFT, y, _RIGHT, y, "rule")
        drawing.text(x, _BOTTOM + 18, f"{fastest * share:.0f}", "small", "middle")
        drawing.text(_LEFT - 8, y + 4, f"{floor + (1 - floor) * share:.4f}", "small", "end")
    drawing.line(_LEFT, _TOP, _LEFT, _BOTTOM, "axis")
    drawing.line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "axis")
