"""Metrics of one ranked list, 0 to 1, as trec_eval and BEIR define them; ids come best first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def ndcg(ranked: Sequence[str], relevant: Mapping[str, int], k: int = 10) -> float:
    """Return the gain of the first k, each divided by log2(rank + 1), over the most that could be had."""
    found = _gain([relevant.get(name, 0) for name in ranked[:k]])
    best = _gain(sorted(relevant.values(), reverse=True)[:k])
    return found / best if best else 0.0


def recall(ranked: Sequence[str], relevant: Mapping[str, int], k: int = 10) -> float:
    """Return the share of the relevant documents that are among the first k."""
    wanted = {name for name, score in relevant.items() if score > 0}
    return len(wanted.intersection(ranked[:k])) / len(wanted) if wanted else 0.0


def reciprocal_rank(ranked: Sequence[str], relevant: Mapping[str, int], k: int = 10) -> float:
    """Return 1 / rank of the first relevant document among the first k, 0 if there is none."""
    ranks = (rank for rank, name in enumerate(ranked[:k], start=1) if relevant.get(name, 0) > 0)
    return 1 / next(ranks, math.inf)


def top_overlap(ranked: Sequence[str], reference: Sequence[str], k: int = 10) -> float:
    """Return the share of the reference's first k that are among the first k."""
    wanted = set(reference[:k])
    return len(wanted.intersection(ranked[:k])) / len(wanted) if wanted else 1.0


def _gain(scores: Sequence[int]) -> float:
    return sum(score / math.log2(rank + 1) for rank, score in enumerate(scores, start=1))
