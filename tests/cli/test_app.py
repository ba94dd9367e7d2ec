from __future__ import annotations

import re

import pytest
import typer

from octavo.cli.app import app
from octavo.versions import __version__
from tests.cli.conftest import Run

COMMANDS = tuple(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def test_help_lists_every_command(run: Run) -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert all(command in result.stdout for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_examples_and_the_common_options(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert "Examples" in result.stdout and f"octavo {command}" in result.stdout
    assert all(option in result.stdout for option in ("--json", "--debug"))
    named = re.findall(r"(--[A-Za-z-]+)", result.stdout)
    assert all(option.islower() for option in named)  # typer 0.27 took some metavars for names


def test_version(run: Run) -> None:
    assert run("--version").stdout == f"octavo {__version__}\n"


def test_without_arguments_help_is_shown(run: Run) -> None:
    assert "Usage" in run().output


@pytest.mark.parametrize(
    "arguments",
    [("quantise",), ("sites",), ("quantize", "m", "--device", "tpu"), ("sites", "m", "--placement", "all")],
    ids=["unknown command", "argument missing", "unknown device", "unknown placement"],
)
def test_bad_usage_exits_with_2(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [(("quantise",), "'quantize'"), (("sites", "m", "--weight"), "--weights")],
    ids=["command", "option"],
)
def test_an_unknown_name_is_answered_with_the_nearest(
    run: Run, arguments: tuple[str, ...], nearest: str
) -> None:
    assert nearest in run(*arguments).stderr


@pytest.mark.parametrize("command", ["recipes", "sites", "export", "bench"])
@pytest.mark.parametrize("option", ["--seed", "--device"])
def test_an_option_that_would_be_ignored_is_refused(run: Run, command: str, option: str) -> None:
    result = run(command, "m", option, "0")
    assert result.exit_code == 2
    assert f"No such option: {option}" in result.stderr
