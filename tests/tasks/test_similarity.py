from __future__ import annotations

import math

import numpy as np
import pytest

from octavo.errors import ModelError
from octavo.tasks.examples import Examples
from octavo.tasks.similarity import cosine_similarity, embed_texts, similarity_metrics
from tests.tasks.fake import FakeEncoder

ANGLES = {"zero": 0.0, "ten": 10.0, "fifty": 50.0, "ninety": 90.0}


def encoder() -> FakeEncoder:
    def outputs(text: object) -> dict[str, list[list[float]]]:
        angle = math.radians(ANGLES[str(text)])
        return {"last_hidden_state": [[math.cos(angle), math.sin(angle)]] * 3}

    return FakeEncoder(outputs)


def pairs(labels: list[float]) -> Examples:
    texts = (("zero", "ten"), ("zero", "fifty"), ("zero", "ninety"))
    return Examples(
        task="glue/stsb", split="dev", texts=texts, labels=np.array(labels), full=1500, source="test"
    )


@pytest.mark.parametrize(
    ("labels", "expected"), [([5.0, 3.0, 0.0], 100.0), ([0.0, 3.0, 5.0], -100.0), ([3.0, 5.0, 0.0], 50.0)]
)
def test_score_is_the_rank_correlation_of_cosines(labels: list[float], expected: float) -> None:
    assert similarity_metrics(encoder(), pairs(labels)) == {"spearman": pytest.approx(expected)}


def test_repeated_sentences_are_embedded_once() -> None:
    model = encoder()
    similarity_metrics(model, pairs([5.0, 3.0, 0.0]), batch_size=3)
    assert model.sizes == [3, 1]


def test_embeddings_keep_the_order_of_the_texts() -> None:
    embeddings = embed_texts(encoder(), ["ninety", "zero"], batch_size=1)
    assert embeddings == pytest.approx(np.array([[0.0, 1.0], [1.0, 0.0]]), abs=1e-6)


def test_a_zero_vector_is_similar_to_nothing() -> None:
    assert cosine_similarity(np.zeros((1, 2)), np.ones((1, 2))).tolist() == [0.0]


def test_embeddings_that_are_not_finite_are_refused() -> None:
    model = FakeEncoder(lambda text: {"last_hidden_state": [[math.nan, 0.0]]})
    with pytest.raises(ModelError, match="Embeddings of fake hold NaN"):
        embed_texts(model, ["a"])
