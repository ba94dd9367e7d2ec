"""Quality against speed as one figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from octavo.drawing import Drawing
from octavo.runtime.bench import Benchmark, Row

_WIDTH, _HEIGHT = 760.0, 440.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 80.0, _WIDTH - 220.0, 50.0, _HEIGHT - 60.0
_KINDS = {"float": "bar", "simulated": "quiet", "integer": "hot"}
_STEPS = 4


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
    for row, speed, cosine in points:
        x = _LEFT + speed / fastest * (_RIGHT - _LEFT)
        y = _TOP + (1 - cosine) / max(1 - floor, 1e-9) * (_BOTTOM - _TOP)
        note = " (simulated)" if row.kind == "simulated" else ""
        drawing.circle(x, y, 5, _KINDS[row.kind], f"{speed:.0f} texts per second, cosine {cosine:.4f}")
        drawing.text(x + 9, y + 4, row.name + note)
    return drawing


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
