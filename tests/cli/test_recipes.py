from __future__ import annotations

import json
from pathlib import Path

from octavo.spec import recipe_from_dict
from octavo.spec.presets import preset_names, recipe
from octavo.spec.yaml import parse_recipe
from tests.cli.conftest import Run


def test_the_table_lists_every_preset(run: Run) -> None:
    result = run("recipes")
    assert result.exit_code == 0
    assert all(name in result.stdout for name in preset_names())


def test_json_lists_every_preset(run: Run) -> None:
    document = json.loads(run("recipes", "--json").stdout)
    assert [entry["name"] for entry in document["recipes"]] == list(preset_names())


def test_a_name_prints_yaml_that_reads_back(run: Run, tmp_path: Path) -> None:
    text = run("recipes", "w8a8-peg6").stdout
    assert parse_recipe(text) == recipe("w8a8-peg6")
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    assert run("recipes", file).stdout == text


def test_a_name_as_json(run: Run) -> None:
    assert recipe_from_dict(json.loads(run("recipes", "w8a8-mp", "--json").stdout)) == recipe("w8a8-mp")


def test_an_unknown_name_is_answered_with_the_nearest(run: Run) -> None:
    result = run("recipes", "w8a8-pge6")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "did you mean 'w8a8-peg6'" in result.stderr
