from __future__ import annotations

import pytest

from octavo.diagnosis.verdict import judge, least
from octavo.fidelity import Cosine, Quality


def quality(cosine: float | None, **rest: float) -> Quality:
    mean = None if cosine is None else Cosine(mean=cosine, worst=cosine)
    return Quality(**{"cosine": mean, "sqnr": 12.0, **rest})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (quality(0.995), "kept"),
        (quality(0.96), "fair"),
        (quality(0.58), "broken"),
        (quality(None), "fair"),
        (quality(None, sqnr=3.0), "broken"),
        (quality(0.999, agreement=0.9), "broken"),
        (quality(0.9, agreement=1.0), "fair"),
        (quality(0.9, score=89.8), "kept"),
        (quality(0.9, score=88.0), "fair"),
        (quality(0.999, score=60.0), "broken"),
    ],
)
def test_kept_fair_and_broken(given: Quality, verdict: str) -> None:
    assert judge(given, 90.0, 64) == verdict


def test_one_of_few_texts_may_change_its_prediction() -> None:
    assert judge(quality(0.995, agreement=15 / 16), texts=16) == "kept"
    assert judge(quality(0.995, agreement=14 / 16), texts=16) == "broken"


def test_the_bound_is_told_in_the_words_of_its_measure() -> None:
    assert least(quality(0.5)) == "cosine 0.95"
    assert least(quality(None)) == "an SQNR of 10 dB"
    assert least(quality(0.5, agreement=0.5)) == "97 % of the predictions"
    assert "3 points below the float model's score of 90.00" in least(quality(0.5, score=1.0), 90.0)
