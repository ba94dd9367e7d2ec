from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from octavo.drawing import Drawing, style_sheet, ticks
from octavo.errors import OutputError


def test_ticks_are_round_and_never_minus_zero() -> None:
    assert ticks(-3.7, 194.9, 5) == [0, 50, 100, 150]
    assert [f"{tick:g}" for tick in ticks(-0.4, 1.0, 4)] == ["0", "0.5", "1"]
    assert ticks(2, 2, 5) == [2]


def test_text_in_figures_is_escaped() -> None:
    drawing = Drawing(10, 10, 'a "title" <b>')
    drawing.text(1, 1, "<&>")
    drawing.rect(0, 0, 1, 1, "bar", tip="<i>")
    assert "<&>" not in drawing.inline() and "<i>" not in drawing.inline() and "<b>" not in drawing.inline()
    ET.fromstring(drawing.inline())


def test_a_document_stands_alone_and_is_replaced_only_if_allowed(tmp_path: Path) -> None:
    drawing = Drawing(10, 10, "one bar")
    drawing.rect(0, 0, 5, 5, "bar")
    drawing.write(tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert text == drawing.document()
    assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    with pytest.raises(OutputError, match="exists already"):
        drawing.write(tmp_path / "figure.svg", force=False)


@pytest.mark.parametrize(
    "kind", ["bar", "hot", "quiet", "mark", "field", "ghost", "rule", "axis", "base", "ring"]
)
def test_every_kind_has_a_style(kind: str) -> None:
    assert f".figure .{kind} {{" in style_sheet()
