"""Drawing: the one writer of SVG. Shapes carry classes, so that one style sheet serves light and dark."""

from __future__ import annotations

import math
from html import escape
from importlib import resources
from pathlib import Path

from octavo.files import write_file


def style_sheet() -> str:
    """Return the style sheet of all figures; a page that shows them inline needs it once."""
    return (resources.files("octavo.drawing") / "figure.css").read_text(encoding="utf-8")


class Drawing:
    """A figure of a fixed size in user units; every text is escaped.

    The kind of a shape is a class of `figure.css`: bar, hot, quiet, mark, field and ghost fill; rule, axis
    and base are lines; label, small, head and hotlabel are texts.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str, tip: str = "", opacity: float = 1
    ) -> None:
        """Add a rectangle; `tip` is shown on hover."""
        faded = f' fill-opacity="{opacity:.3f}"' if opacity < 1 else ""
        size = f'width="{max(width, 0):.2f}" height="{max(height, 0):.2f}"'
        shape = f'<rect class="{kind}" x="{x:.2f}" y="{y:.2f}" {size}{faded}'
        self._parts.append(f"{shape}><title>{escape(tip)}</title></rect>" if tip else f"{shape}/>")

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        """Add a straight line."""
        self._parts.append(f'<line class="{kind}" x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}"/>')

    def circle(self, x: float, y: float, radius: float, kind: str, tip: str = "") -> None:
        """Add a dot."""
        self._parts.append(
            f'<circle class="{kind}" cx="{x:.2f}" cy="{y:.2f}" r="{radius:.2f}">'
            f"<title>{escape(tip)}</title></circle>"
        )

    def text(
        self, x: float, y: float, text: str, kind: str = "label", anchor: str = "start", turn: float = 0
    ) -> None:
        """Add a line of text, turned by this many degrees around its anchor."""
        turned = f' transform="rotate({turn:g} {x:.2f} {y:.2f})"' if turn else ""
        self._parts.append(
            f'<text class="{kind}" x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}"{turned}>'
            f"{escape(text)}</text>"
        )

    def cells(self, boxes: list[tuple[float, float, float, float]], kind: str) -> None:
        """Add many small rectangles as one path."""
        path = "".join(f"M{x:.2f} {y:.2f}h{w:.2f}v{h:.2f}h{-w:.2f}z" for x, y, w, h in boxes)
        if path:
            self._parts.append(f'<path class="{kind}" d="{path}"/>')

    def inline(self) -> str:
        """Return the figure as an element of a page that has the figures' style sheet."""
        size = f'viewBox="0 0 {self.width:g} {self.height:g}" style="max-width:{self.width:g}px"'
        label = escape(self.title, quote=True)
        return f'<svg class="figure" role="img" aria-label="{label}" {size}>{"".join(self._parts)}</svg>'

    def document(self) -> str:
        """Return the figure as a document of its own, with its style sheet."""
        size = f'width="{self.width:g}" height="{self.height:g}" viewBox="0 0 {self.width:g} {self.height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" class="figure alone" role="img" {size}>'
        title = f"<title>{escape(self.title)}</title><style>{style_sheet()}</style>"
        back = f'<rect class="page" width="{self.width:g}" height="{self.height:g}"/>'
        return f"{head}{title}{back}{''.join(self._parts)}</svg>\n"

    def write(self, file: Path, force: bool = True) -> None:
        """Write the figure as a file of its own."""
        with write_file(file, force) as draft:
            draft.write_text(self.document(), encoding="utf-8")


def nice_step(span: float, most: int) -> float:
    """Return a step of 1, 2 or 5 times a power of ten that cuts a span into at most this many parts."""
    step = 10.0**-9
    while True:
        for factor in (1, 2, 5):
            if span / (step * factor) <= most:
                return step * factor
        step *= 10


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers from low to high."""
    if high <= low:
        return [low]
    step = nice_step(high - low, most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(multiple * step, 10) for multiple in range(first, last + 1)]
