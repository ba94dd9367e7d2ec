from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run

RECIPES = "w8a8,w8a8-peg3,w4a32"


def rows(run: Run, *arguments: object) -> dict[str, dict[str, Any]]:
    result = run("compare", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return {row["recipe"]: row for row in json.loads(result.stdout)["rows"]}


def refused(run: Run, *arguments: object) -> str:
    result = run("compare", *arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return str(result.stderr)


def test_a_row_has_fidelity_size_and_bits(run: Run, tiny: Path, texts: Path) -> None:
    found = rows(run, tiny, "--recipes", RECIPES, "--calibration", texts)
    assert list(found) == ["fp32", "w8a8", "w8a8-peg3", "w4a32"]
    peg = found["w8a8-peg3"]
    assert 0.9 < peg["cosine"]["worst"] <= peg["cosine"]["mean"] <= 1
    assert peg["bytes"] < found["fp32"]["bytes"] and found["w4a32"]["bytes"] < peg["bytes"]
    assert peg["extra_parameters"] == 2 * (32 + 2 * 3 * 3)
    assert peg["activation_bits"] == {"8": 29} and found["w4a32"]["activation_bits"] == {"float": 29}


def test_the_table_names_every_recipe(run: Run, tiny: Path, texts: Path) -> None:
    result = run("compare", tiny, "--recipes", RECIPES, "--calibration", texts, "--seeds", "0,1")
    assert result.exit_code == 0, result.output
    assert all(name in result.stdout for name in ("fp32", "w8a8-peg3", "w4a32", "neighbours", "29 x 8"))


def test_a_stopped_comparison_goes_on(run: Run, tiny: Path, texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    arguments = (tiny, "--calibration", texts, "-o", folder)
    first = rows(run, *arguments, "--recipes", "w8a8")
    kept = (folder / "w8a8-seed-0.json").stat().st_mtime_ns
    both = rows(run, *arguments, "--recipes", "w8a8,w4a32")
    assert both["w8a8"] == first["w8a8"]
    assert (folder / "w8a8-seed-0.json").stat().st_mtime_ns == kept


def test_a_folder_of_other_texts_is_refused(run: Run, tiny: Path, texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    rows(run, tiny, "--recipes", "w4a32", "--calibration", texts, "-o", folder)
    message = refused(run, tiny, "--recipes", "w4a32", "--calibration", texts, "--limit", 2, "-o", folder)
    assert "holds a comparison with another calibration" in message and "give another folder" in message


def test_options_that_make_no_sense_are_refused(run: Run, tiny: Path, texts: Path) -> None:
    given = (tiny, "--calibration", texts)
    assert "did you mean 'w8a8'" in refused(run, *given, "--recipes", "w8a9")
    assert "--recipes is empty" in refused(run, *given, "--recipes", ",")
    assert "names more than one row" in refused(run, *given, "--recipes", "w8a8,w8a8")
    assert "whole numbers" in refused(run, *given, "--recipes", "w8a8", "--seeds", "0,x")
    told = refused(run, *given, "--recipes", "w8a8", "--data", ".")
    assert "not one in BEIR's layout" in told and "such as --task glue/rte" in told
