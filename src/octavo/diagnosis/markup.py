"""HTML by hand: sections, tables and figures; every text that comes from data is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from octavo.drawing import Drawing

NONE = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
_REGION = '<div class="scroll" tabindex="0" role="region" aria-label="Table">'


def asset(name: str) -> str:
    """Return a file of the report that comes with the package."""
    return (resources.files("octavo.diagnosis") / "assets" / name).read_text(encoding="utf-8")


def section(name: str, title: str, lead: str, *parts: str) -> str:
    """A section with a heading and a first sentence; `parts` are HTML, the rest is text."""
    heading = f'<h2 id="{name}-h">{escape(title)}</h2><p class="lead">{escape(lead)}</p>'
    return f'<section id="{name}" aria-labelledby="{name}-h">{heading}{"".join(parts)}</section>'


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], sortable: bool = False) -> str:
    """A table whose first column is text and whose others are numbers or short words."""
    heads = "".join(f"<th scope=col>{escape(text)}</th>" for text in headers)
    lines = "".join(_row(*row) for row in rows)
    kind = ' class="sortable"' if sortable else ""
    return f"{_REGION}<table{kind}><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"


def _row(first: str, *rest: str) -> str:
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
    return f"<tr><th scope=row>{escape(first)}</th>{cells}</tr>"


def figure(drawing: Drawing, caption: str) -> str:
    """A figure with its caption."""
    return f"<figure>{drawing.inline()}<figcaption>{escape(caption)}</figcaption></figure>"


def details(summary: str, body: str) -> str:
    """HTML that is folded away behind a line of text."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def heading(text: str) -> str:
    """A heading inside a section."""
    return f"<h3>{escape(text)}</h3>"
