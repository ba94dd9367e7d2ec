from __future__ import annotations

import pytest

from octavo.errors import ModelError, SpecError
from octavo.tasks import Similarity, evaluate
from tests.tasks.fake import FakeEncoder

ROWS = [
    {"a": "red", "b": "red", "score": 5},
    {"a": "red", "b": "pink", "score": 3.5},
    {"a": "red", "b": "blue", "score": 0},
]
VECTORS = {"red": [1.0, 0.0], "pink": [0.9, 0.4], "blue": [0.0, 1.0]}


def test_cosines_rank_pairs() -> None:
    fake = FakeEncoder(lambda text: {"last_hidden_state": [VECTORS[str(text)]]})
    result = evaluate(fake, task=Similarity(dev=ROWS, text=("a", "b")), against=fake)
    assert result.score == pytest.approx(100) and result.agreement["rank_correlation"] == pytest.approx(100)


def test_a_classifier_embeds_nothing() -> None:
    with pytest.raises(ModelError, match=r"needs no head \(an embedding model\); fake has a masked-lm head"):
        evaluate(FakeEncoder(lambda text: {}, head="masked-lm"), task=Similarity(dev=ROWS, text=("a", "b")))
    with pytest.raises(SpecError, match="name two columns of texts, not 'a' alone"):
        Similarity(text="a")
