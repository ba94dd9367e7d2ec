from __future__ import annotations

from octavo.diagnosis.wording import number, percent


def test_numbers_are_short_and_never_round_to_nothing() -> None:
    assert [number(x) for x in (194.9, 1.504, 0.00012, -3.72)] == ["195", "1.5", "0.00012", "-3.72"]
    assert [percent(x) for x in (0.0, 0.0002, 0.44, 0.999, 1.0)] == [
        "0 %",
        "0.02 %",
        "44 %",
        "over 99 %",
        "100 %",
    ]
