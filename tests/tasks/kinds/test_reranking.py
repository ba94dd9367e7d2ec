from __future__ import annotations

import numpy as np
import pytest

from octavo.errors import DataError, ModelError, SpecError
from octavo.tasks import Reranking, evaluate
from tests.tasks.fake import FakeEncoder

PAIRS = [
    {"query": "q1", "passage": "right", "relevance": 1},
    {"query": "q1", "passage": "wrong", "relevance": 0},
    {"query": "q1", "passage": "worse", "relevance": 0},
    {"query": "q2", "passage": "wrong", "relevance": 1},
    {"query": "q2", "passage": "right", "relevance": 0},
    {"query": "q3", "passage": "right", "relevance": 0},
]
SCORES = {"right": 3.0, "wrong": 1.0, "worse": -1.0}


def scorer(outputs: int = 1) -> FakeEncoder:
    return FakeEncoder(
        lambda pair: {"logits": [0.0, SCORES[pair[1]]][-outputs:]},
        head="sequence-classification",
        num_labels=outputs,
    )


@pytest.mark.parametrize("outputs", [1, 2])
def test_passages_are_ranked_for_each_query(outputs: int) -> None:
    result = evaluate(scorer(outputs), task=Reranking(dev=PAIRS))
    assert result.metrics["mrr@10"] == pytest.approx(75.0)  # first of q1, second of q2; q3 has no answer
    assert list(result.metrics) == ["mrr@10", "ndcg@10"] and result.examples == 6


def test_rows_with_lists_of_passages() -> None:
    rows = [{"query": "q1", "positive": ["right"], "negative": ["wrong", "worse"]}]
    assert evaluate(scorer(), task=Reranking(dev=rows)).score == 100.0
    arrays = [
        {"query": "q1", "positive": np.array(["right"], object), "negative": np.array(["wrong"], object)}
    ]
    assert evaluate(scorer(), task=Reranking(dev=arrays)).score == 100.0


def test_a_model_that_answers_everything_alike_ranks_nothing_first() -> None:
    rows = [{"query": f"q{n}", "positive": [f"p{n}"], "negative": [f"n{n}", f"m{n}"]} for n in range(200)]
    alike = FakeEncoder(lambda pair: {"logits": [0.5]}, head="sequence-classification", num_labels=1)
    result = evaluate(alike, task=Reranking(dev=rows), against=alike)
    # by chance the relevant one of three is first, second or third
    assert result.metrics["mrr@10"] == pytest.approx(100 * (1 + 1 / 2 + 1 / 3) / 3, abs=5)
    assert result.agreement["top_ten"] == 100.0


def test_two_models_agree_in_ranks_and_in_the_first_ten() -> None:
    other = FakeEncoder(
        lambda pair: {"logits": [-SCORES[pair[1]]]}, head="sequence-classification", num_labels=1
    )
    result = evaluate(scorer(), task=Reranking(dev=PAIRS), against=other)
    assert result.agreement == {"rank_correlation": pytest.approx(-100.0), "top_ten": 100.0}


def test_an_embedding_model_ranks_by_cosine() -> None:
    vectors = {"q1": [1.0, 0.0], "q2": [0.0, 1.0], "q3": [1.0, 1.0], "right": [0.9, 0.1], "wrong": [0.1, 0.9]}
    fake = FakeEncoder(lambda text: {"last_hidden_state": [vectors.get(str(text), [-1.0, -1.0])]})
    assert evaluate(fake, task=Reranking(dev=PAIRS)).score == 100.0


def test_what_is_held_out_keeps_the_passages_of_a_query_together() -> None:
    rows = [{"query": f"q{n}", "positive": [f"p{n}"], "negative": [f"n{n}"]} for n in range(40)]
    task = Reranking(train=rows, holdout=0.3)
    train, dev = ({query for query, _ in task.read(split).texts} for split in ("train", "dev"))
    assert train and dev and not train & dev


def test_what_cannot_be_ranked() -> None:
    with pytest.raises(
        ModelError, match="needs a head with 1 output, or 2 of which the second says relevant"
    ):
        evaluate(
            FakeEncoder(lambda pair: {}, head="sequence-classification", num_labels=3),
            task=Reranking(dev=PAIRS),
        )
    for passage in ("", None, float("nan")):
        with pytest.raises(DataError, match=r"row 1: a passage in column 'negative' is .*; write its text"):
            Reranking(dev=[{"query": "q", "positive": ["a"], "negative": [passage]}]).read()
    with pytest.raises(DataError, match="list holds no relevant passage"):
        Reranking(dev=PAIRS[-1:]).read()
    with pytest.raises(DataError, match=r"row 1: relevance 0\.5 is no whole number"):
        Reranking(dev=[PAIRS[0] | {"relevance": 0.5}]).read()
    with pytest.raises(SpecError, match="reads two columns, query and passage, not 'a' alone"):
        Reranking(text="a")
