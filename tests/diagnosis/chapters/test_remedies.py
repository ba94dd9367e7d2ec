from __future__ import annotations

import shlex

import pytest

from octavo.diagnosis import diagnose
from octavo.diagnosis.chapters.remedies import Trial, advice
from octavo.fidelity import Cosine, Quality
from octavo.graph import Encoder


def quality(cosine: float, score: float | None = None) -> Quality:
    return Quality(cosine=Cosine(mean=cosine, worst=cosine), sqnr=10.0, score=score)


def trials(plain: float, groups: float | None, mixed: float) -> list[Trial]:
    values = {"w8a8": plain, "w8a8-peg6": groups, "w8a8-mp": mixed}
    return [
        Trial(recipe=name, quality=None if value is None else quality(value))
        for name, value in values.items()
    ]


@pytest.mark.parametrize(
    ("plain", "groups", "mixed", "title"),
    [
        (0.995, 0.999, 0.999, "Use w8a8"),
        (0.84, 0.95, 0.96, "Use w8a8-peg6"),
        (0.84, 0.85, 0.96, "Use w8a8-mp"),
        (0.84, None, 0.96, "Use w8a8-mp"),
        (0.84, 0.80, 0.83, "No recipe tried here helps"),
    ],
)
def test_the_recipe_that_keeps_most_for_least(
    plain: float, groups: float | None, mixed: float, title: str
) -> None:
    assert advice(trials(plain, groups, mixed), True, "m", "t.txt")[0].title == title


@pytest.mark.parametrize(("float_score", "title"), [(70.2, "Use w8a8"), (90.0, "Use w8a8-mp")])
def test_a_score_is_kept_when_half_a_point_is_lost(float_score: float, title: str) -> None:
    tried = [
        Trial(recipe=name, quality=quality(0.5, score))
        for name, score in {"w8a8": 70.0, "w8a8-mp": 89.0}.items()
    ]
    assert advice(tried, True, "m", "t.txt", float_score)[0].title == title


def test_commands_can_be_pasted_into_a_shell() -> None:
    found = advice(trials(0.84, 0.95, 0.96), True, "folder/my model", "my texts.txt")[0]
    assert shlex.split(found.commands[0]) == [
        "octavo", "quantize", "folder/my model", "--recipe", "w8a8-peg6", "--calibration", "my texts.txt",
        "-o", "my model-w8a8-peg6",
    ]  # fmt: skip


def test_a_balanced_model_is_not_accused(plain: Encoder, texts: list[str]) -> None:
    found = diagnose(plain, texts, sensitivity=())
    assert found.outliers == ()
    assert [finding.level for finding in found.findings if finding.level == "problem"] == []
    assert found.findings[0].title == "No dimension dwarfs the others"
    assert found.findings[-1].title == "Use w8a8"
