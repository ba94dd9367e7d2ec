from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from octavo.diagnosis.breakage import Breakage, RoleCost, find_breakage
from octavo.diagnosis.repairs import foldable_roles, mixed_precision, try_repairs
from octavo.fidelity import Cosine, Quality
from octavo.graph import Encoder
from octavo.progress import silent
from octavo.spec import Fold, PerChannel
from octavo.spec.presets import recipe
from octavo.spec.yaml import load_recipe, parse_recipe
from tests.diagnosis.conftest import study_of, without_search


def cost(role: str, kind: str = "activation") -> RoleCost:
    quality = Quality(cosine=Cosine(mean=0.9, worst=0.9), sqnr=10.0)
    return RoleCost(role=role, kind=kind, sites=1, left_out=quality, gain=0.1)


def test_folding_the_role_that_breaks_a_recipe_repairs_it(broken: Encoder, texts: list[str]) -> None:
    study = study_of(broken, texts)
    folded = without_search()  # the search of int8 repairs it by itself
    breakage = find_breakage(study, "int8", folded, silent)
    found = {repair.name: repair for repair in try_repairs(study, "int8", folded, breakage)}
    assert list(found) == ["int8-fold", "int8-weights"]
    assert breakage.everything.value < 0.95 < min(repair.quality.value for repair in found.values())


def test_what_does_not_help_is_not_told(broken: Encoder, texts: list[str]) -> None:
    blamed = (cost("attention_probs"),)  # it has no channels
    whole = Quality(cosine=Cosine(mean=0.5, worst=0.5), sqnr=1.0)
    breakage = Breakage(recipe="int8", everything=whole, roles=blamed)
    found = try_repairs(study_of(broken, texts), "int8", recipe("int8"), breakage)
    assert [repair.name for repair in found] == ["int8-weights"]


@pytest.mark.parametrize("name", ["int8", "w8a8"], ids=["a recipe with passes", "a recipe without"])
def test_the_commands_write_the_recipes_that_were_tried(
    broken: Encoder, texts: list[str], tmp_path: Path, name: str
) -> None:
    worst = Quality(cosine=Cosine(mean=-1.0, worst=-1.0), sqnr=0.0)
    breakage = Breakage(recipe=name, everything=worst, roles=(cost("query"),))
    found = try_repairs(study_of(broken, texts), name, recipe(name), breakage)
    octavo = tmp_path / "octavo"
    octavo.write_text(f'#!/bin/sh\nexec {sys.executable} -m octavo "$@"\n', encoding="utf-8")
    octavo.chmod(0o755)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": path}
    made, known = found
    assert made.make is not None and (known.make, known.recipe) == (None, "int8-weights")
    subprocess.run(["sh", "-c", made.make], cwd=tmp_path, env=environment, check=True)
    folded = load_recipe(tmp_path / f"{name}-fold.yaml")
    entry = folded.passes[0]
    assert isinstance(entry, Fold) and entry == Fold(roles=("query",), power=entry.power)
    assert folded == replace(recipe(name), name=f"{name}-fold", passes=(entry, *recipe(name).passes))


def test_overrides_are_lines_of_yaml() -> None:
    roles = [cost("ffn_hidden"), cost("linear_weight", "weight")]
    head = "octavo: 2\nname: x\nweights: {bits: 8}\nactivations: {bits: 8}\noverrides:\n"
    mixed = parse_recipe(head + mixed_precision(roles)).overrides[0]
    assert (mixed.roles, mixed.bits) == (("ffn_hidden",), 16)
    finer = parse_recipe(head + mixed_precision(roles[1:])).overrides[0]
    assert (finer.roles, finer.granularity) == (("linear_weight",), PerChannel())


@pytest.mark.parametrize(
    ("name", "foldable"),
    [("w8a8", ("ffn_input", "ffn_hidden")), ("int8", ()), ("w8a8-peg6", ("ffn_hidden",))],
    ids=["per tensor", "folded already", "in groups"],
)
def test_only_what_has_one_range_and_is_not_folded_is_folded(
    plain: Encoder, name: str, foldable: tuple[str, ...]
) -> None:
    roles = [cost("ffn_input"), cost("ffn_hidden"), cost("linear_weight", "weight")]
    assert foldable_roles(recipe(name), roles, plain.activation_sites) == foldable
