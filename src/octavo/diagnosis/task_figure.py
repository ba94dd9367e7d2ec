"""The figure of appendix D: one panel for each task, one box for each text."""

from __future__ import annotations

from octavo.diagnosis.distributions import PANEL_TEXTS, Distributions, Panel
from octavo.drawing import Drawing, ticks

_WIDTH, _PER_ROW, _HIGH, _TITLE = 912.0, 3, 130.0, 26.0


def tasks(found: Distributions, which: str) -> Drawing:
    """`which` is inputs or outputs; on one scale the range of each text, and its quartiles as a box."""
    site = found.input_site if which == "inputs" else found.output_site
    panels = found.panels
    rows = -(-len(panels) // _PER_ROW)
    drawing = Drawing(_WIDTH, 30 + rows * (_HIGH + _TITLE + 20), f"FFN {which} by task")
    boxes = [box for panel in panels for box in _boxes(panel, which)]
    low, high = min(box[0] for box in boxes), max(box[-1] for box in boxes)
    drawing.text(0, 14, f"{site}: range of each text, and its quartiles", "head")
    for number, panel in enumerate(panels):
        across = (_WIDTH - 2 * 24) / _PER_ROW
        x, y = (number % _PER_ROW) * (across + 24), 28 + (number // _PER_ROW) * (_HIGH + _TITLE + 20)
        _panel(drawing, panel, which, (x, y, across), (low, high))
    return drawing


def _panel(
    drawing: Drawing, panel: Panel, which: str, place: tuple[float, float, float], scale: tuple[float, float]
) -> None:
    x, y, across = place
    low, high = scale
    left, top = x + 38, y + _TITLE
    unit = _HIGH / max(high - low, 1e-12)
    step = (across - 38) / PANEL_TEXTS
    drawing.text(left, y + 16, panel.task, "head")
    for tick in ticks(low, high, 5):
        drawing.line(left, top + (high - tick) * unit, x + across, top + (high - tick) * unit, "rule")
        drawing.text(left - 5, top + (high - tick) * unit + 3.5, f"{tick:g}", "small", "end")
    for number, box in enumerate(_boxes(panel, which)):
        middle = left + step * (number + 0.5)
        ends = [top + (high - value) * unit for value in box]
        drawing.line(middle, ends[4], middle, ends[0], "whisker")
        drawing.line(middle - 4, ends[4], middle + 4, ends[4], "whisker")
        drawing.line(middle - 4, ends[0], middle + 4, ends[0], "whisker")
        tip = f"text {number + 1}: {box[0]:.3g} … {box[4]:.3g}"
        drawing.rect(middle - 0.3 * step, ends[3] - 0.75, 0.6 * step, ends[1] - ends[3] + 1.5, "bar", tip)


def _boxes(panel: Panel, which: str) -> tuple[tuple[float, ...], ...]:
    return panel.inputs if which == "inputs" else panel.outputs
