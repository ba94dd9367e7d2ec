"""What a shell is told: the words of a line go to the command line itself, as the installed scripts do it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from octavo.cli.app import app
from octavo.spec.presets import PRESETS


def offered(line: str, shell: str = "bash") -> list[str]:
    """Return what the shell shows for a line that ends at the cursor."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_TYPER_COMPLETE_ARGS": line}
    environment = words | {"_OCTAVO_COMPLETE": f"complete_{shell}"}
    return CliRunner().invoke(app, [], prog_name="octavo", env=environment).stdout.split("\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("octavo qu", ["quantize"]),
        ("octavo export m --lay", ["--layout"]),
        ("octavo export m --layout ", ["file", "hub"]),
        ("octavo quantize m --recipe w8a8-peg6", [name for name in PRESETS if name.startswith("w8a8-peg6")]),
        ("octavo recipes int8-f", ["int8-full"]),
        ("octavo compare m --recipes w8a8,int8-f", ["w8a8,int8-full"]),
        ("octavo quantize m --recipe ./mine", []),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_commands_options_choices_and_recipes_are_completed(line: str, expected: list[str]) -> None:
    assert [word for word in offered(line) if word] == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_the_shell_is_shown(shell: str) -> None:
    done = CliRunner().invoke(app, [], prog_name="octavo", env={"_OCTAVO_COMPLETE": f"source_{shell}"})
    assert done.exit_code == 0 and "_OCTAVO_COMPLETE" in done.stdout
    assert "Install completion" in CliRunner().invoke(app, ["--help"]).stdout


def test_recipes_come_with_what_they_are() -> None:
    assert any("static W8A8 for CPUs" in line for line in offered("octavo quantize m --recipe int8", "zsh"))
