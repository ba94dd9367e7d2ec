from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octavo.diagnosis.chapters.writers import Writers
from octavo.diagnosis.trials import CUT, cut, cut_command, given_name, recipes
from octavo.graph import Encoder
from octavo.methods import quantize
from octavo.spec import Mse
from octavo.spec.presets import recipe
from octavo.spec.yaml import load_recipe
from tests.diagnosis.conftest import LARGE, study_of
from tests.diagnosis.test_writers import WEIGHT, found_in

OTHER = "layers.0.ffn_output.weight"


def test_only_the_weights_that_write_outliers_are_cut(written: Encoder, texts: list[str]) -> None:
    model, plain = (quantize(written, each, texts) for each in (cut([WEIGHT]), recipe("w8a8")))
    tops = [
        {name: float(each.quantizers[name].scale) * 127 for name in (WEIGHT, OTHER)}
        for each in (model, plain)
    ]
    assert tops[1][WEIGHT] == pytest.approx(LARGE) and tops[0][WEIGHT] < 0.9 * LARGE
    (found,) = found_in(written)
    assert found.is_cut and found.limit == pytest.approx(tops[0][WEIGHT], rel=0.01)
    assert tops[0][OTHER] == tops[1][OTHER]


def test_the_command_writes_the_recipe_that_was_tried(tmp_path: Path) -> None:
    octavo = tmp_path / "octavo"
    octavo.write_text(f'#!/bin/sh\nexec {sys.executable} -m octavo "$@"\n', encoding="utf-8")
    octavo.chmod(0o755)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": path}
    tried = cut([OTHER, WEIGHT])
    subprocess.run(["sh", "-c", cut_command(tried)], cwd=tmp_path, env=environment, check=True)
    assert load_recipe(tmp_path / f"{CUT}.yaml") == tried


def test_without_weights_to_cut_nothing_more_is_tried(plain: Encoder, texts: list[str]) -> None:
    study = study_of(plain, texts)
    study.results["writers"] = Writers(writers=())
    assert list(recipes(study)) == ["w8a8", "w8a8-peg6", "w8a8-mp", "int8"]


def test_a_given_recipe_of_that_name_is_told_apart(plain: Encoder, texts: list[str]) -> None:
    mine = cut([OTHER])
    assert given_name(mine) == f"{CUT}-given" and mine.overrides[0].estimator == Mse()
    study = study_of(plain, texts, recipe=mine)
    study.results["writers"] = Writers(writers=())
    assert list(recipes(study))[-1] == f"{CUT}-given"
