from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from octavo.diagnosis.breakage import Breakage, RoleCost, find_breakage
from octavo.fidelity import Cosine, Quality
from octavo.graph import Encoder
from octavo.ledger import Ledger
from octavo.methods import quantize
from octavo.progress import silent
from octavo.spec import Override
from octavo.spec.presets import recipe
from tests.diagnosis.conftest import study_of, without_search


def kept(cosine: float) -> Quality:
    return Quality(cosine=Cosine(mean=cosine, worst=cosine), sqnr=10.0)


def breakage(everything: float, **roles: float) -> Breakage:
    costs = tuple(
        RoleCost(role=role, kind="activation", sites=2, left_out=kept(value), gain=value - everything)
        for role, value in roles.items()
    )
    return Breakage(recipe="int8", everything=kept(everything), roles=costs)


def test_the_planted_role_is_found_among_all_of_the_recipe(broken: Encoder, texts: list[str]) -> None:
    found = find_breakage(study_of(broken, texts), "int8", without_search(), silent)
    assert found.worst is not None and found.worst.role == "ffn_hidden" and found.worst.sites == 2
    assert found.is_alone and [cost.role for cost in found.blamed] == ["ffn_hidden"]
    assert {"linear_weight", "query", "layer_output"} <= {cost.role for cost in found.roles}


@pytest.mark.parametrize("role", ["ffn_hidden", "query"])
def test_a_role_left_in_float_equals_a_recipe_without_it(
    broken: Encoder, texts: list[str], role: str
) -> None:
    study, int8 = study_of(broken, texts), without_search()
    found = find_breakage(study, "int8", int8, silent)
    cost = next(cost for cost in found.roles if cost.role == role)
    without = replace(int8, overrides=(*int8.overrides, Override(roles=(role,), off=True)))
    alone = study.fidelity(quantize(broken, without, texts))
    assert cost.left_out.value == pytest.approx(alone.value, abs=1e-6)
    assert cost.gain == cost.left_out.value - found.everything.value


def test_nothing_is_measured_twice_and_the_model_is_calibrated_once(
    broken: Encoder, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    real = quantize

    def counted(encoder: Encoder, wanted: Any, *rest: Any, **options: Any) -> Any:
        made.append(wanted.name)
        return real(encoder, wanted, *rest, **options)

    monkeypatch.setattr("octavo.diagnosis.chapter.quantize", counted)
    first = find_breakage(study_of(broken, texts, Ledger(tmp_path, {})), "int8", recipe("int8"), silent)
    again = find_breakage(study_of(broken, texts, Ledger(tmp_path, {})), "int8", recipe("int8"), silent)
    assert again == first and made == ["int8"]


def test_who_is_to_blame() -> None:
    assert breakage(0.5, a=0.95, b=0.52).is_alone
    several = breakage(0.5, a=0.6, b=0.58, c=0.56, d=0.55, e=0.4)
    assert not several.is_alone and [cost.role for cost in several.blamed] == ["a", "b", "c"]
    assert breakage(0.5, a=0.51).blamed[0].role == "a"
    assert breakage(0.5, a=0.4).worst is None and breakage(0.5, a=0.4).blamed == ()
