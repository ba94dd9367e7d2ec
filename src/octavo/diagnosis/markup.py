"""HTML by hand: sections, tables, figures, packed numbers; text that comes from data is escaped here."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from octavo.drawing import Drawing

_REGION = '<div class="scroll" tabindex="0" role="region" aria-label="Table">'
_LARGEST_HALF = 65504.0


def asset(name: str) -> str:
    """Return a file of the report that comes with the package."""
    return (resources.files("octavo.diagnosis") / "assets" / name).read_text(encoding="utf-8")


def section(name: str, title: str, lead: str, *parts: str) -> str:
    """Return a section with a heading and a first sentence; `parts` are HTML, the rest is text."""
    heading = f'<h2 id="{name}-h">{escape(title)}</h2><p class="lead">{escape(lead)}</p>'
    return f'<section id="{name}" aria-labelledby="{name}-h">{heading}{"".join(parts)}</section>'


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], sortable: bool = False) -> str:
    """Return a table whose first column is text and whose others are numbers or short words."""
    heads = "".join(f"<th scope=col>{escape(text)}</th>" for text in headers)
    lines = "".join(_row(*row) for row in rows)
    kind = ' class="sortable"' if sortable else ""
    return f"{_REGION}<table{kind}><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>"


def _row(first: str, *rest: str) -> str:
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
    return f"<tr><th scope=row>{escape(first)}</th>{cells}</tr>"


def figure(drawing: Drawing, caption: str) -> str:
    """Return a figure with its caption."""
    return f"<figure>{drawing.inline()}<figcaption>{escape(caption)}</figcaption></figure>"


def details(summary: str, body: str) -> str:
    """Return HTML that is folded away behind a line of text."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def heading(text: str) -> str:
    """Return a heading inside a section."""
    return f"<h3>{escape(text)}</h3>"


# -- numbers for the script of the page ----------------------------------------------------------------------


def script_data(document: Mapping[str, Any]) -> str:
    """Return a JSON document for a script element; no character of it can end the element."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def packed_halves(x: Tensor) -> str:
    """Return a tensor as base64 of little-endian half floats, to keep the report small."""
    clipped = x.detach().float().cpu().numpy().clip(-_LARGEST_HALF, _LARGEST_HALF)
    return _encoded(clipped.astype("<f2"))


def packed_bytes(x: Tensor) -> str:
    """Return a tensor of numbers from 0 to 1 as base64 of bytes."""
    return _encoded((x.detach().float().cpu().numpy().clip(0, 1) * 255).round().astype(np.uint8))


def _encoded(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")
