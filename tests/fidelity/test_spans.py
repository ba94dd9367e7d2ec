from __future__ import annotations

import numpy as np
import pytest

from octavo.fidelity.spans import best_span, span_overlap


def logits(*values: float) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)


def test_the_best_span_has_the_largest_sum_of_both_logits() -> None:
    allowed = np.asarray([False, True, True, True])
    score, span = best_span(logits(9, 1, 5, 0), logits(9, 7, 2, 4), allowed)  # type: ignore[misc]
    assert (score, span) == (9.0, (2, 3))


def test_it_is_what_trying_all_spans_finds() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        start, end = generator.normal(size=(2, 15))
        allowed = generator.random(15) > 0.3
        places = np.flatnonzero(allowed)
        every = [(start[s] + end[e], (s, e)) for s in places for e in places if s <= e < s + 5]
        assert best_span(start, end, allowed, longest=5) == max(every)


def test_where_no_token_is_allowed_there_is_none() -> None:
    assert best_span(logits(1, 2), logits(1, 2), np.asarray([False, False])) is None


def test_overlap_is_the_f1_of_tokens() -> None:
    assert span_overlap((2, 5), (2, 5)) == 1.0
    assert span_overlap((2, 3), (3, 6)) == pytest.approx(2 / 6)
    assert span_overlap((0, 1), (2, 3)) == 0.0
