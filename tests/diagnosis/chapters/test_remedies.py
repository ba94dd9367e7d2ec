from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo.diagnosis import diagnose
from octavo.diagnosis.breakage import Breakage, RoleCost
from octavo.diagnosis.chapters.remedies import advice, breaks
from octavo.diagnosis.repairs import Repair
from octavo.diagnosis.trials import Trial, given_name
from octavo.fidelity import Cosine, Quality
from octavo.graph import Encoder
from octavo.spec import Override
from octavo.spec.presets import recipe as preset


def quality(cosine: float, score: float | None = None) -> Quality:
    return Quality(cosine=Cosine(mean=cosine, worst=cosine), sqnr=10.0, score=score)


def trials(
    plain: float, groups: float | None, mixed: float, integer: float | None = None, cut: float | None = None
) -> list[Trial]:
    values = {"w8a8": plain, "w8a8-peg6": groups, "w8a8-mp": mixed, "w8a8-cut": cut, "int8": integer}
    return [
        Trial(
            recipe=name,
            quality=None if value is None else quality(value),
            make="make cut" if name == "w8a8-cut" else None,
        )
        for name, value in values.items()
    ]


@pytest.mark.parametrize(
    ("plain", "groups", "mixed", "integer", "title"),
    [
        (0.995, 0.999, 0.999, None, "Use w8a8"),
        (0.84, 0.95, 0.96, None, "Use w8a8-peg6"),
        (0.84, 0.85, 0.96, None, "Use w8a8-mp"),
        (0.84, None, 0.96, None, "Use w8a8-mp"),
        (0.96, 0.80, 0.83, None, "No recipe tried here helps"),
        (0.84, 0.80, 0.83, None, "None of the recipes tried keeps this model"),
        (0.21, 0.58, 0.77, 0.88, "None of the recipes tried keeps this model"),
        (0.84, 0.95, 0.96, 0.97, "Use int8"),
        (0.84, 0.95, 0.999, 0.99, "Use int8"),
        (0.84, 0.96, 0.97, 0.80, "Use w8a8-peg6"),
        (0.50, 0.80, 0.96, 0.85, "Use w8a8-mp"),
    ],
)
def test_the_recipe_that_keeps_most_for_least(
    plain: float, groups: float | None, mixed: float, integer: float | None, title: str
) -> None:
    assert advice(trials(plain, groups, mixed, integer), True, "m", "t.txt")[0].title == title


@pytest.mark.parametrize(
    ("cut", "title"),
    [
        (0.97, "Use w8a8-cut"),
        (0.955, "Use w8a8-cut"),
        (0.951, "Use w8a8-peg6"),
        (0.94, "Use w8a8-peg6"),
        (0.80, "Use w8a8-peg6"),
    ],
)
def test_cutting_weights_is_advised_where_it_keeps_most_in_8_bits(cut: float, title: str) -> None:
    found = advice(trials(0.84, 0.953, 0.96, cut=cut), True, "m", "t.txt")[0]
    assert found.title == title
    made = [index for index, command in enumerate(found.commands) if command == "make cut"]
    # broken, or worse than plain 8 bits, it is not among the commands
    assert len(made) == (cut >= 0.95)
    for index in made:
        assert "--recipe w8a8-cut.yaml" in found.commands[index + 1]


def test_cutting_weights_that_loses_more_is_not_said_to_help() -> None:
    found = advice(trials(0.84, 0.96, 0.97, cut=0.5), True, "m", "t.txt")[0]
    assert "w8a8-cut" not in found.text and not any("cut" in command for command in found.commands)
    none = advice(trials(0.96, 0.80, 0.83, cut=0.7), True, "m", "t.txt")[0]
    assert "none of w8a8-peg6, w8a8-mp, w8a8-cut keeps more" in none.text


def test_a_repair_of_the_cut_recipe_writes_that_recipe_first() -> None:
    breakage = Breakage(recipe="w8a8-cut", everything=quality(0.9), roles=())
    repair = Repair(
        name="r", what="r", recipe="r.yaml", make="make r", needs_texts=False, quality=quality(0.97)
    )
    tried = trials(0.2, 0.3, 0.4, cut=0.9)
    found = advice(tried, True, "m", "t.txt", breakage=breakage, repairs=[repair])[0]
    assert found.commands[:2] == ("make cut", "make r")


def test_a_recipe_that_breaks_the_model_is_never_among_the_commands() -> None:
    found = advice(trials(0.5, 0.8, 0.96, 0.85), True, "m", "t.txt")[0]
    assert len(found.commands) == 1 and "--recipe w8a8-mp" in found.commands[0]


def test_where_nothing_is_good_it_says_so_with_the_best_number_and_what_to_do() -> None:
    kept = quality(0.997)
    cost = RoleCost(role="ffn_hidden", kind="activation", sites=12, left_out=kept, gain=0.117)
    breakage = Breakage(recipe="int8", everything=quality(0.88), roles=(cost,))
    repair = Repair(
        name="int8-fold", what="int8 folded", recipe="f.yaml", make="make f", needs_texts=True, quality=kept
    )
    tried = trials(0.21, 0.58, 0.77, 0.88)
    found = advice(tried, True, "m", "t.txt", texts=16, breakage=breakage, repairs=[repair])[0]
    assert found.title == "None of the recipes tried keeps this model; int8 folded does"
    assert "The best of them, int8" in found.text and "cosine 0.880" in found.text and "0.95" in found.text
    said = " ".join(found.evidence)
    assert "int8 folded keeps cosine 0.997" in said and "- {roles: [ffn_hidden], bits: 16}" in said
    assert "octavo qat" in said
    assert found.commands == (
        "make f",
        "octavo quantize m --recipe f.yaml --calibration t.txt -o m-int8-fold",
    )
    headline = breaks(breakage, "broken")[0]
    assert (headline.level, headline.title) == ("problem", "ffn_hidden breaks int8")
    assert "keeps cosine 0.880" in headline.text and "left in float it keeps cosine 0.997" in headline.text


def test_a_classifier_that_changes_its_mind_is_not_kept() -> None:
    flips = Quality(cosine=Cosine(mean=0.998, worst=0.9), sqnr=20.0, agreement=0.8)
    found = advice([Trial(recipe="w8a8", quality=flips)], True, "m", "t.txt", texts=64)[0]
    assert found.title == "None of the recipes tried keeps this model"
    assert "80 % of the predictions" in found.text and "97 % of the predictions" in found.text


@pytest.mark.usefixtures("int8_without_search")
def test_the_headline_is_the_role_that_breaks_the_best_recipe(broken: Encoder, texts: list[str]) -> None:
    found = diagnose(broken, texts, sensitivity=())
    assert [trial.recipe for trial in found.trials] == ["w8a8", "w8a8-peg6", "w8a8-mp", "int8"]
    assert found.findings[0].title == "ffn_hidden breaks int8"
    assert "layers.1.ffn_hidden" in found.findings[0].evidence[0]
    last = found.findings[-1]
    assert last.title.startswith("None of the recipes tried keeps this model; int8 with ffn_hidden folded")
    assert "- fold: {roles: [ffn_hidden], power: 0.5}" in last.commands[0]
    document = found.to_dict()
    assert document["breakage"]["roles"][0]["role"] == "ffn_hidden"
    assert [repair["name"] for repair in document["repairs"]] == ["int8-fold", "int8-weights"]


@pytest.mark.usefixtures("int8_without_search")
def test_the_recipe_given_is_the_one_at_hand(broken: Encoder, texts: list[str]) -> None:
    finer = (*preset("int8").overrides, Override(roles=("ffn_hidden",), bits=16))
    mine = replace(preset("int8"), name="mine", overrides=finer)
    found = diagnose(broken, texts, sensitivity=(), recipe=mine)
    assert found.trials[-1].recipe == "mine" and found.breakage is None
    assert found.findings[-1].title == "Use mine" and "--recipe mine.yaml" in found.findings[-1].commands[0]
    other = diagnose(broken, texts, sensitivity=(), recipe=preset("w8a8"))
    assert other.findings[0].title == "w8a8 breaks at more than one role, most at linear_weight"


@pytest.mark.usefixtures("int8_without_search")
def test_the_report_shows_what_each_role_costs_and_a_second_run_measures_nothing(
    broken: Encoder, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = diagnose(broken, texts, output=tmp_path / "out", sensitivity=())
    assert first.report is not None
    page = first.report.read_text(encoding="utf-8")
    assert "What breaks int8" in page and "role left in float" in page

    def never(*_: Any) -> Any:
        raise AssertionError("measured again")

    for name in ("measure", "fidelity", "quantize"):
        monkeypatch.setattr(f"octavo.diagnosis.chapter.Study.{name}", never)
    again = diagnose(broken, texts, output=tmp_path / "out", sensitivity=())
    assert (again.findings, again.breakage) == (first.findings, first.breakage)


def test_a_recipe_called_like_a_preset_is_told_apart() -> None:
    other = replace(preset("int8"), placement="full")
    assert (given_name(other), given_name(preset("int8"))) == ("int8-given", "int8")


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
