"""Quality against speed as one small SVG, written by hand so that nothing has to be installed for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from octavo.files import write_file
from octavo.runtime.benchmark import Benchmark, Row

_WIDTH, _HEIGHT = 760, 440
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 220, 50, 60
_COLOURS = {"float": "#4c6a92", "simulated": "#9a9a9a", "integer": "#c2571a"}


def write_plot(benchmark: Benchmark, path: Path, shape: tuple[int, int], force: bool = False) -> Path:
    """Write texts per second at `shape` against mean cosine to the first artifact."""
    with write_file(path, force) as draft:
        draft.write_text(draw(benchmark.rows, shape), encoding="utf-8")
    return path


def draw(rows: Sequence[Row], shape: tuple[int, int]) -> str:
    """The SVG document."""
    points = [(row, row.at(*shape).texts_per_second, row.quality.mean_cosine) for row in rows if row.quality]
    fastest = max((speed for _, speed, _ in points), default=1.0) * 1.05
    lowest = min([cosine for _, _, cosine in points] + [0.99])
    floor = math.floor(lowest * 100) / 100
    parts = [_frame(shape), *_ticks(fastest, floor)]
    for row, speed, cosine in points:
        x = _LEFT + speed / fastest * (_WIDTH - _LEFT - _RIGHT)
        y = _TOP + (1 - cosine) / max(1 - floor, 1e-9) * (_HEIGHT - _TOP - _BOTTOM)
        parts.append(_point(x, y, row))
    style = "<style>text{font:12px sans-serif;fill:#333}.title{font-size:15px}</style>"
    size = f'width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{style}{"".join(parts)}</svg>\n'


def _frame(shape: tuple[int, int]) -> str:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    return (
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>'
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#333"/>'
        f'<text class="title" x="{_LEFT}" y="24">'
        f"Quality against speed, batches of {shape[0]} x {shape[1]} tokens</text>"
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 16}" text-anchor="middle">texts per second</text>'
        f'<text x="{_LEFT}" y="{_TOP - 8}" text-anchor="middle">cosine</text>'
    )


def _ticks(fastest: float, floor: float) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    marks = []
    for step in range(5):
        x, y = _LEFT + step / 4 * (right - _LEFT), bottom - step / 4 * (bottom - _TOP)
        marks.append(
            f'<text x="{x:.0f}" y="{bottom + 18}" text-anchor="middle">{fastest * step / 4:.0f}</text>'
        )
        marks.append(
            f'<text x="{_LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">'
            f"{floor + (1 - floor) * step / 4:.4f}</text>"
        )
        marks.append(f'<path d="M{_LEFT} {y:.0f}H{right}" stroke="#eee"/>')
    return marks


def _point(x: float, y: float, row: Row) -> str:
    note = " (simulated)" if row.kind == "simulated" else ""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{_COLOURS[row.kind]}"/>'
        f'<text x="{x + 9:.1f}" y="{y + 4:.1f}">{escape(row.name + note)}</text>'
    )
