from __future__ import annotations

from octavo.diagnosis.wording import NONE, cells_of, columns, kept, number, percent
from octavo.fidelity import Quality


def test_numbers_are_short_and_never_round_to_nothing() -> None:
    assert [number(x) for x in (194.9, 1.504, 0.00012, -3.72)] == ["195", "1.5", "0.00012", "-3.72"]
    assert [percent(x) for x in (0.0, 0.0002, 0.44, 0.999, 1.0)] == [
        "0 %",
        "0.02 %",
        "44 %",
        "over 99 %",
        "100 %",
    ]


def test_tables_and_sentences_speak_the_language_of_the_head() -> None:
    tagger = Quality(cosine=None, sqnr=12.0, agreement=0.98, entities=0.91)
    assert columns(tagger) == {"SQNR dB": "12.0", "agreement": "98 %", "entities": "91 %"}
    assert kept(tagger) == " and 98 % of the predictions and 91 % of the entities"
    reader = Quality(cosine=None, sqnr=12.0, spans=0.875)
    assert columns(reader)["answers"] == "88 %" and kept(reader) == " and 88 % of the answers"
    embedder = Quality(cosine=None, sqnr=12.0, neighbours=0.9, rank_correlation=0.95)
    assert columns(embedder) == {"SQNR dB": "12.0", "neighbours": "90 %", "ranks": "0.9500"}
    silent = Quality(cosine=None, sqnr=3.0, agreement=0.5)
    assert cells_of(silent, columns(tagger)) == ("3.0", "50 %", NONE)
