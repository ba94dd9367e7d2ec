from __future__ import annotations

import numpy as np
import pytest
import pytrec_eval

from octavo.numerics.ranking_metrics import ndcg, recall, reciprocal_rank, top_overlap


def searches(seed: int) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    """Judgements from 0 to 2 and scores of 30 documents for 8 queries; some relevant ones are not found."""
    generator = np.random.default_rng(seed)
    judged, scored = {}, {}
    for query in range(8):
        names = [f"d{number}" for number in range(40)]
        relevant = generator.choice(40, 6, replace=False)
        judged[f"q{query}"] = {names[index]: int(generator.integers(1, 3)) for index in relevant}
        scored[f"q{query}"] = {name: float(generator.random()) for name in names[:30]}
    return judged, scored


@pytest.mark.parametrize("seed", range(3))
def test_metrics_of_a_ranking_are_those_of_trec_eval(seed: int) -> None:
    judged, scored = searches(seed)
    measures = {"ndcg_cut.10", "recall.10", "recall.20", "recip_rank"}
    found = pytrec_eval.RelevanceEvaluator(judged, measures).evaluate(scored)
    for query, scores in scored.items():
        ranked = sorted(scores, key=lambda name: -scores[name])
        assert ndcg(ranked, judged[query], 10) == pytest.approx(found[query]["ndcg_cut_10"])
        assert recall(ranked, judged[query], 10) == pytest.approx(found[query]["recall_10"])
        assert recall(ranked, judged[query], 20) == pytest.approx(found[query]["recall_20"])
        assert reciprocal_rank(ranked, judged[query], 30) == pytest.approx(found[query]["recip_rank"])


def test_by_hand() -> None:
    ranked = ["a", "b", "c"]
    assert reciprocal_rank(ranked, {"c": 1}) == pytest.approx(1 / 3)
    assert reciprocal_rank(ranked, {"c": 1}, k=2) == 0.0
    assert ndcg(ranked, {"b": 1}) == pytest.approx(1 / np.log2(3))
    assert recall(ranked, {"b": 1, "x": 1, "ignored": 0}) == 0.5
    assert ndcg(ranked, {}) == recall(ranked, {}) == 0.0


def test_overlap_of_the_first() -> None:
    assert top_overlap(["a", "b", "c"], ["b", "a", "d"], k=2) == 1.0
    assert top_overlap(["a", "b", "c"], ["c", "d", "e"], k=3) == pytest.approx(1 / 3)
