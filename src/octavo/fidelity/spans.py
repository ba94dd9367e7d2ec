"""Spans: where a reader finds its answer, and how much two spans overlap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LONGEST = 30
"""Tokens of an answer at most, as SQuAD's scripts have it."""
_BEST = 20

Span = tuple[int, int]
"""First and last token."""


def best_span(
    start: NDArray[np.float64], end: NDArray[np.float64], allowed: NDArray[np.bool_], longest: int = LONGEST
) -> tuple[float, Span] | None:
    """Return the span of allowed tokens with the largest sum of both logits, None where none is allowed.

    Arguments:
        start, end: logits of one text, (length,).
        allowed: tokens that answers may begin and end with, (length,).
    """
    index = np.flatnonzero(allowed)
    if not len(index):
        return None
    starts = index[np.argsort(-start[index], kind="stable")[:_BEST]]
    ends = index[np.argsort(-end[index], kind="stable")[:_BEST]]
    pairs = [
        (float(start[s] + end[e]), (int(s), int(e))) for s in starts for e in ends if s <= e < s + longest
    ]
    if not pairs:  # the best starts stand behind the best ends: any single token is a span
        each = start[index] + end[index]
        best = int(index[each.argmax()])
        return float(each.max()), (best, best)
    return max(pairs, key=lambda pair: pair[0])


def span_overlap(span: Span, reference: Span) -> float:
    """Return the F1 of the tokens of two spans, 0 to 1.

    >>> span_overlap((3, 4), (4, 4))
    0.6666666666666666
    """
    shared = min(span[1], reference[1]) - max(span[0], reference[0]) + 1
    sizes = span[1] - span[0] + reference[1] - reference[0] + 2
    return 2 * max(shared, 0) / sizes
