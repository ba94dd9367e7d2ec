from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from octavo.fidelity import Cosine, Fidelity, Neighbours, Quality, read_measure
from octavo.fidelity.measures import MEASURES, is_measure

ENCODER = Fidelity(
    texts=4,
    cosine=Cosine(mean=0.9, worst=0.5),
    sqnr={"last_hidden_state": 12.0, "embedding": 20.0},
    neighbours=Neighbours(kept=0.75, of=3, texts=4),
)
ANSWERS = Fidelity(
    texts=2,
    cosine=Cosine(mean=0.9, worst=0.5),
    sqnr={"start_logits": 10.0, "end_logits": 30.0},
    agreement={"start_logits": 1.0, "end_logits": 0.5},
    kl={"start_logits": 0.0, "end_logits": 0.2},
)


def test_an_encoder_is_summed_up_by_its_embedding() -> None:
    quality = ENCODER.quality()
    assert (quality.sqnr, quality.neighbours, quality.agreement, quality.kl) == (20.0, 0.75, None, None)


def test_several_outputs_are_summed_up_by_their_mean() -> None:
    quality = ANSWERS.quality(score=71.5)
    assert (quality.sqnr, quality.agreement, quality.kl, quality.score) == (20.0, 0.75, 0.1, 71.5)


def test_outputs_that_are_identical_do_not_hide_those_that_are_not() -> None:
    assert replace(ANSWERS, sqnr={"start_logits": math.inf, "end_logits": 30.0}).quality().sqnr == 30.0
    assert replace(ANSWERS, sqnr={"start_logits": math.inf}).quality().sqnr == math.inf
    assert replace(ANSWERS, sqnr={"start_logits": -5.0, "end_logits": 5.0}).quality().sqnr == 0.0


@pytest.mark.parametrize(
    ("quality", "measure", "value"),
    [
        (ENCODER.quality(), "cosine", 0.9),
        (ENCODER.quality(score=71.5), "score", 71.5),
        (Quality(cosine=None, sqnr=17.0), "sqnr", 17.0),
        (Quality(cosine=None, sqnr=math.inf), "sqnr", 200.0),
    ],
    ids=["cosine", "score", "sqnr", "identical"],
)
def test_what_models_are_ranked_by(quality: Quality, measure: str, value: float) -> None:
    assert (quality.measure, quality.value) == (measure, value)


@pytest.mark.parametrize(
    "quality", [ENCODER.quality(), Quality(cosine=None, sqnr=math.inf)], ids=["", "identical"]
)
def test_plain_data_is_valid_json_and_reads_back(quality: Quality) -> None:
    plain = json.loads(json.dumps(quality.to_dict(), allow_nan=False))
    assert Quality.from_dict(plain) == quality


def test_every_measure_is_read_from_a_row_by_its_name() -> None:
    row = Quality(
        cosine=Cosine(mean=1, worst=2),
        sqnr=3,
        agreement=4,
        kl=5,
        correlation=6,
        neighbours=7,
        rank_correlation=8,
        entities=9,
        spans=10,
    ).to_dict()
    assert [read_measure(row, name) for name in MEASURES] == list(range(1, 11))


def test_rows_of_before_are_still_read() -> None:
    row = {"cosine_mean": 1, "cosine_worst": 2, "sqnr_db": 3, "agreement": 4, "neighbour_overlap": 7}
    assert [read_measure(row, name) for name in MEASURES] == [1, 2, 3, 4, None, None, 7, None, None, None]
    assert all(map(is_measure, row))
    assert not is_measure("bytes")
