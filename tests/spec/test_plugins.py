"""Little packages, installed as pip would: a module and a folder of metadata on the path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from octavo.cli.app import app
from octavo.errors import DataError, OctavoWarning, SpecError
from octavo.graph.quantizers.ranges import ESTIMATORS
from octavo.spec import parse_recipe, plugins
from octavo.spec.presets import PRESETS, recipe
from octavo.spec.variant import Variant
from octavo.tasks import Task, find_task

Install = Callable[[str, str], None]

MEDIAN = """
from dataclasses import dataclass, replace

from octavo.graph.quantizers.ranges import ESTIMATORS
from octavo.numerics import AllMinMax
from octavo.spec import Estimator, TensorSpec
from octavo.spec.presets import PRESETS
from octavo.tasks import Classification


@dataclass(frozen=True, kw_only=True)
class Mine(Estimator, name="my-min-max"):
    "The widest range."


@dataclass(frozen=True, kw_only=True)
class Mood(Classification, name="my-moods"):
    "Labels of texts."


ESTIMATORS[Mine] = AllMinMax
PRESETS["my-w8a8"] = replace(PRESETS["w8a8"], name="my-w8a8", activations=TensorSpec(estimator=Mine()))
"""

RECIPE = "{octavo: 2, name: mine, weights: {bits: 8, symmetric: true}, activations: {estimator: %s}}"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that installs a package of one module; what it registers is forgotten after the test."""
    tables = [ESTIMATORS, *plugins._tables, *(family._variants for family in Variant.__subclasses__())]
    before = [dict(table) for table in tables]
    modules = set(sys.modules)
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(site)
    monkeypatch.setattr(plugins, "_failures", None)

    def write(name: str, source: str) -> None:
        (site / f"{name}.py").write_text(source, encoding="utf-8")
        metadata = site / f"{name}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[octavo]\nadds = {name}\n")

    yield write
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)
    for module in set(sys.modules) - modules:
        if str(site) in str(getattr(sys.modules[module], "__file__", "")):
            del sys.modules[module]


@pytest.fixture
def quantize(tiny_bert_folder: Callable[..., Path], tmp_path: Path) -> Callable[[str], Result]:
    """Run `octavo quantize` with a recipe of one's own that names an estimator."""

    def run(estimator: str) -> Result:
        (tmp_path / "mine.yaml").write_text(RECIPE % estimator, encoding="utf-8")
        (tmp_path / "texts.txt").write_text("the dog barks.\na cat sleeps.\n", encoding="utf-8")
        given = ("--recipe", tmp_path / "mine.yaml", "--calibration", tmp_path / "texts.txt")
        command = ("quantize", tiny_bert_folder(), *given, "-o", tmp_path / "out")
        return CliRunner().invoke(app, [str(argument) for argument in command])

    return run


def test_a_recipe_names_what_a_package_adds(
    install: Install, quantize: Callable[[str], Result], tmp_path: Path
) -> None:
    install("octavo_median", MEDIAN)
    result = quantize("my-min-max")
    assert result.exit_code == 0, result.output
    assert "my-min-max" in (tmp_path / "out" / "octavo.json").read_text(encoding="utf-8")


def test_a_broken_plugin_is_warned_of_and_does_not_break_others(
    install: Install, quantize: Callable[[str], Result]
) -> None:
    install("a_broken_one", "import there_is_no_such_module")
    install("octavo_median", MEDIAN)
    result = quantize("my-min-max")
    assert result.exit_code == 0, result.output
    told = " ".join(result.stderr.split())
    assert (
        "The plugin 'adds' of the package a_broken_one 1.0 could not be loaded: ModuleNotFoundError" in told
    )


def test_an_unknown_name_names_the_plugin_that_might_have_had_it(
    install: Install, quantize: Callable[[str], Result]
) -> None:
    install("a_broken_one", MEDIAN + "\nraise RuntimeError('no licence\\nmore')")
    result = quantize("my-min-max")
    assert result.exit_code == 2 and "unknown name 'my-min-max'" in result.stderr
    assert "package a_broken_one 1.0 could not be loaded: RuntimeError: no licence)" in result.stderr
    assert "my-w8a8" not in PRESETS and "my-moods" not in Task.variants()


def test_presets_and_kinds_of_tasks_are_found_by_name(install: Install) -> None:
    install("octavo_median", MEDIAN)
    assert recipe("my-w8a8").name == "my-w8a8"
    assert type(find_task("my-moods")).__name__ == "Mood"
    assert "my-w8a8" in CliRunner().invoke(app, ["recipes"]).stdout


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (MEDIAN.replace("my-min-max", "mse"), "the estimator 'mse' exists already, in octavo.spec.estimator"),
        (MEDIAN.replace('PRESETS["my-w8a8"]', 'PRESETS["w8a8"]'), "the preset 'w8a8' exists already"),
    ],
    ids=["estimator", "preset"],
)
def test_a_name_that_exists_is_refused(install: Install, source: str, message: str) -> None:
    ours = PRESETS["w8a8"]
    install("a_clash", source)
    with pytest.raises(SpecError, match=f"package a_clash 1.0 could not be loaded: {message}"):
        parse_recipe(RECIPE % "my-other")
    with pytest.raises(DataError, match=message):
        find_task("my-task")
    assert PRESETS["w8a8"] is ours


def test_what_octavo_has_itself_imports_no_plugin(install: Install) -> None:
    install("a_broken_one", "import there_is_no_such_module")
    assert parse_recipe(RECIPE % "mse").name == "mine" and recipe("w8a8").name == "w8a8"
    assert plugins._failures is None
    with pytest.warns(OctavoWarning, match="a_broken_one"):
        plugins.with_plugins(PRESETS)
