"""Wording: numbers and measures as they stand in sentences and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable

from octavo.fidelity import Quality

NONE = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
MEASURES = {"score": "score", "cosine": "cosine", "sqnr": "SQNR (dB)"}
"""How the measures that models are ranked by are called in sentences."""
_SHARES = {
    "agreement": ("agreement", "of the predictions"),
    "neighbours": ("neighbours", "of the nearest neighbours"),
    "entities": ("entities", "of the entities"),
    "spans": ("answers", "of the answers"),
}
"""What a head keeps as a share: its column in tables, and as part of a sentence."""


def number(value: float) -> str:
    """Return three digits: 194.9 as 195, 1.504 as 1.5."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent(share: float) -> str:
    """Return a share as a percentage: whole numbers, but never 0 % or 100 % for what is not."""
    text = f"{100 * share:z.0f} %"  # never -0 %
    if text == "0 %" and share > 0:
        return f"{100 * share:.2g} %"
    return "over 99 %" if text == "100 %" and share < 1 else text


def decibels(ratio: float) -> str:
    """Return a ratio in decibels, which is infinite where nothing is lost."""
    return f"{ratio:.1f}" if math.isfinite(ratio) else "exact"


def told(quality: Quality) -> str:
    """Return the one number that counts, as part of a sentence."""
    if quality.score is not None:
        return f"a score of {quality.score:.2f}"
    if quality.cosine is not None:
        return f"cosine {quality.cosine.mean:.3f}"
    return f"an SQNR of {quality.sqnr:.1f} dB"


def short(quality: Quality | None) -> str:
    """Return the one number that counts, alone."""
    if quality is None:
        return NONE
    if quality.score is not None:
        return f"{quality.score:.1f}"
    return f"{quality.cosine.mean:.3f}" if quality.cosine is not None else f"{quality.sqnr:.1f} dB"


def kept(quality: Quality) -> str:
    """Return the shares that the head's language has, as the end of a sentence; nothing where it has none."""
    shares = [f"{percent(share)} {words}" for _, words, share in _shares(quality)]
    return "".join(f" and {share}" for share in shares)


def columns(quality: Quality) -> dict[str, str]:
    """Return the measures of a table by their headers."""
    cells = {} if quality.cosine is None else {"cosine": f"{quality.cosine.mean:.4f}"}
    cells["SQNR dB"] = f"{quality.sqnr:.1f}"
    cells |= {header: percent(share) for header, _, share in _shares(quality)}
    if quality.rank_correlation is not None:
        cells["ranks"] = f"{quality.rank_correlation:.4f}"
    if quality.score is not None:
        cells["score"] = f"{quality.score:.2f}"
    return cells


def cells_of(quality: Quality, headers: Iterable[str]) -> tuple[str, ...]:
    """Return the cells below headers; a model that names no entity has no share of them."""
    cells = columns(quality)
    return tuple(cells.get(header, NONE) for header in headers)


def _shares(quality: Quality) -> list[tuple[str, str, float]]:
    given = ((*words, getattr(quality, name)) for name, words in _SHARES.items())
    return [(header, words, share) for header, words, share in given if share is not None]
