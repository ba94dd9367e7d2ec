"""The figures of a diagnosis: ranking, outliers by layer, ranges by token, heads, sensitivity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.diagnosis.attention import Head
from octavo.diagnosis.outliers import FIGURE_TEXTS
from octavo.diagnosis.sensitivity import Sensitivity
from octavo.diagnosis.statistics import SiteStatistics
from octavo.diagnosis.text_view import TextView, ranges
from octavo.diagnosis.variants import Scope
from octavo.drawing import Drawing, ticks

_WIDTH = 912.0
_RANKED = 16
_PER_ROW = 3
_LABEL = 22.0


def ranking(sites: Sequence[SiteStatistics]) -> Drawing:
    """The worst sites and the error that 8 bits per tensor leave in their median dimension."""
    shown = sites[:_RANKED]
    best = max(10.0, *(min(site.sqnr_db, 60.0) for site in shown))
    drawing = Drawing(_WIDTH, 22.0 * len(shown) + 46, "Sites that 8 bits hurt most")
    left, scale = 160.0, (_WIDTH - 160.0 - 130.0) / best
    bottom = 22.0 * len(shown) + 14
    for tick in ticks(0, best, 8):
        drawing.line(left + tick * scale, 8, left + tick * scale, bottom, "rule")
        drawing.text(left + tick * scale, bottom + 14, f"{tick:g}", "small", "middle")
    drawing.text(
        left,
        bottom + 28,
        "signal to quantization noise (dB) of the median dimension; dot: of the whole tensor",
        "small",
    )
    for row, site in enumerate(shown):
        y = 12 + 22.0 * row
        kind = "hot" if site.role in ("ffn_output", "ffn_residual") else "bar"
        low, high = (max(0.0, min(v, best)) for v in (site.typical_sqnr_db, site.sqnr_db))
        drawing.text(left - 8, y + 12, site.name, "label", "end")
        drawing.rect(left, y + 2, low * scale, 13, kind, f"{site.name}: {site.typical_sqnr_db:.1f} dB")
        drawing.circle(left + high * scale, y + 8.5, 3.2, "mark", f"whole tensor: {site.sqnr_db:.1f} dB")
        drawing.text(_WIDTH - 4, y + 12, f"{site.minimum:.3g} … {site.maximum:.3g}", "small", "end")
    return drawing


def outliers_by_layer(
    title: str,
    sites: Sequence[str],
    widths: Mapping[str, int],
    found: Mapping[str, Mapping[int, Sequence[int]]],
    texts: int,
) -> Drawing:
    """A panel for every layer: dimensions across, first ten texts down, dark beyond 6 sigma."""
    rows = min(texts, FIGURE_TEXTS)
    cell, across = 7.0, (_WIDTH - 16.0 * (_PER_ROW - 1)) / _PER_ROW
    high = 24 + cell * rows + 24
    drawing = Drawing(_WIDTH, 8 + high * -(-len(sites) // _PER_ROW), title)
    for number, name in enumerate(sites):
        x, y = (number % _PER_ROW) * (across + 16), 4 + high * (number // _PER_ROW)
        drawing.text(x, y + 13, name, "head")
        drawing.rect(x, y + 20, across, cell * rows, "field")
        step, hits = across / widths[name], found.get(name, {})
        boxes = [
            (x + d * step, y + 20 + cell * t, max(step, 1.6), cell) for t, dims in hits.items() for d in dims
        ]
        drawing.cells(boxes, "mark")
        _label_frequent(drawing, hits, rows, x, y + 20 + cell * rows, step)
    return drawing


def _label_frequent(
    drawing: Drawing, hits: Mapping[int, Sequence[int]], rows: int, x: float, y: float, step: float
) -> None:
    """Name the dimensions that are outliers in most texts, leaving out labels that would overlap."""
    counts: dict[int, int] = {}
    for dims in hits.values():
        for dimension in dims:
            counts[dimension] = counts.get(dimension, 0) + 1
    labelled: list[float] = []
    for dimension, count in sorted(counts.items(), key=lambda item: -item[1]):
        place = dimension * step
        if 2 * count >= rows and all(abs(place - other) >= _LABEL for other in labelled):
            labelled.append(place)
            drawing.text(x + place, y + 11, str(dimension), "small", "middle")


def token_ranges(view: TextView, names: Sequence[str]) -> Drawing:
    """For some sites of one layer the range of every token (the paper's figure 2a), each on its own scale."""
    left, panel, gap = 56.0, 118.0, 34.0
    drawing = Drawing(_WIDTH, len(names) * (panel + gap) + 66, "Ranges by token")
    step = (_WIDTH - left - 6) / len(view.tokens)
    for number, name in enumerate(names):
        top = 22 + number * (panel + gap)
        low, high = ranges(view.values[name])
        bottom_value, top_value = min(*low, 0.0), max(*high, 0.0)
        unit = panel / max(top_value - bottom_value, 1e-12)
        drawing.text(0, top - 8, name, "head")
        for tick in ticks(bottom_value, top_value, 5):
            y = top + (top_value - tick) * unit
            drawing.line(left, y, _WIDTH - 6, y, "rule")
            drawing.text(left - 6, y + 3.5, f"{tick:g}", "small", "end")
        for place, (lo, hi) in enumerate(zip(low, high, strict=True)):
            kind = "bar" if view.kinds[place] == "word" else "hot"
            tip = f"{view.tokens[place]} ({view.kinds[place]}): {lo:.3g} … {hi:.3g}"
            drawing.rect(
                left + step * place + 0.15 * step,
                top + (top_value - hi) * unit,
                0.7 * step,
                (hi - lo) * unit,
                kind,
                tip,
            )
    for place, token in enumerate(view.tokens):
        x, y = left + step * (place + 0.5), len(names) * (panel + gap) + 4
        kind = "label" if view.kinds[place] == "word" else "hotlabel"
        drawing.text(x + 3, y, token[:14], kind, "end", -48)
    return drawing


def heads(found: Sequence[Head]) -> Drawing:
    """Layer by head: the darker, the more attention lies on separator and class tokens; no-ops are ringed."""
    layers, count = 1 + max(h.layer for h in found), 1 + max(h.head for h in found)
    cell = min(34.0, (_WIDTH - 70) / count)
    drawing = Drawing(70 + cell * count, 34 + cell * layers, "Attention on separator and class tokens")
    for head in range(count):
        drawing.text(66 + cell * (head + 0.5), 14, str(head), "small", "middle")
    for layer in range(layers):
        drawing.text(58, 22 + cell * (layer + 0.5) + 4, f"layer {layer}", "small", "end")
    for h in found:
        x, y = 66 + cell * h.head, 22 + cell * h.layer
        drawing.rect(x, y, cell - 2, cell - 2, "field")
        drawing.rect(
            x, y, cell - 2, cell - 2, "hot", f"head {h.name}: {100 * h.special:.0f} %", opacity=h.special
        )
        if h.no_op:
            drawing.rect(x + 1, y + 1, cell - 4, cell - 4, "ring")
    return drawing


def sensitivity(found: Sensitivity, scope: Scope, most: int = 24) -> Drawing:
    """What each group gives back when left in float (bars), and costs when quantized alone (right)."""
    shown = found.of(scope)[:most]
    drawing = Drawing(_WIDTH, 24.0 * len(shown) + 62, f"Sensitivity by {scope}")
    base = found.everything.value
    # One scale for all scopes: a small effect must look small.
    top = max([v.left_out.value for v in found.variants] + [base])
    bottom = min([v.left_out.value for v in found.variants] + [base])
    left, wide, right = 270.0, 400.0, _WIDTH - 162
    unit = wide / max(top - bottom, 1e-9)
    zero = left + (base - bottom) * unit
    end = 30 + 24.0 * len(shown)
    drawing.text(left, 14, "all in 8 bits, except …", "head")
    drawing.text(right, 14, "only …", "head")
    most_loss = max([v.loss for v in found.variants] + [1e-9])
    for row, variant in enumerate(shown):
        y = 26 + 24.0 * row
        value = left + (variant.left_out.value - bottom) * unit
        drawing.text(left - 10, y + 13, variant.label[:48], "label", "end")
        kind = "hot" if row == 0 and variant.gain > 0 else "bar"
        tip = f"left in float: {variant.left_out.value:.4f} ({variant.gain:+.4f})"
        drawing.rect(min(zero, value), y + 2, max(abs(value - zero), 1), 15, kind, tip)
        drawing.text(max(zero, value) + 5, y + 13, f"{variant.left_out.value:.3f}", "small")
        drawing.rect(
            right,
            y + 2,
            110 * max(variant.loss, 0) / most_loss,
            15,
            "mark",
            f"only this in 8 bits: {variant.alone.value:.4f}",
        )
        drawing.text(_WIDTH - 2, y + 13, f"{variant.alone.value:.3f}", "small", "end")
    drawing.line(zero, 22, zero, end, "base")
    name = found.measure.replace("_db", " (dB)").replace("sqnr", "SQNR")
    drawing.text(zero, end + 14, f"all: {base:.3f}", "small", "middle")
    drawing.text(
        left, end + 28, f"{name} to the float model; recipe {found.recipe}, {found.texts} texts", "small"
    )
    return drawing
