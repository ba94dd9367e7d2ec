from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import pytest
import typer

from octavo.cli.console import Console, report_errors
from octavo.errors import OctavoError, OctavoWarning, SpecError


def fail(error: BaseException, **changes: Any) -> int:
    """Raise an error inside a command and return the exit code."""
    with pytest.raises(typer.Exit) as caught, report_errors(Console(**changes)):
        raise error
    return caught.value.exit_code


@pytest.mark.parametrize("error", [OctavoError, SpecError])
def test_an_error_of_the_user_is_one_line_and_exit_code_2(
    error: type[OctavoError], capsys: pytest.CaptureFixture[str]
) -> None:
    assert fail(error("bits: 1 given\n  use 2 to 16")) == 2
    assert capsys.readouterr() == ("", "Error: bits: 1 given use 2 to 16\n")


def test_debug_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(OctavoError("wrong"), debug=True) == 2
    shown = capsys.readouterr().err
    assert "Traceback" in shown and shown.endswith("Error: wrong\n")


def test_an_interrupt_is_one_line_and_exit_code_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(KeyboardInterrupt()) == 130
    shown = capsys.readouterr().err
    assert shown == "Error: interrupted\n"


def test_a_bug_is_not_dressed_up() -> None:
    with pytest.raises(ZeroDivisionError), report_errors(Console()):
        raise ZeroDivisionError


def test_a_warning_is_one_line_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    with report_errors(Console()):
        for _ in range(3):
            warnings.warn("2 texts\nwere cut", OctavoWarning, stacklevel=1)
    assert capsys.readouterr() == ("", "Warning: 2 texts were cut\n")


@pytest.mark.parametrize("debug", [False, True])
def test_warnings_of_libraries_are_for_debugging(debug: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: shown.append(str(message)))
    with report_errors(Console(debug=debug)):
        warnings.warn("old name", DeprecationWarning, stacklevel=1)
    assert shown == (["old name"] if debug else [])


def test_a_command_leaves_warnings_as_they_were() -> None:
    before = (warnings.showwarning, list(warnings.filters))
    with report_errors(Console()):
        pass
    assert (warnings.showwarning, list(warnings.filters)) == before


def test_json_is_the_only_output(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(as_json=True)
    console.show("a table")
    console.write("a file")
    console.tell("prose")
    console.heading("a heading")
    console.result({"sqnr": [float("inf"), 1.5], "name": "é"})
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"sqnr": [None, 1.5], "name": "é"}
    assert shown.err == ""


def test_names_with_brackets_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console()
    console.show("models/[bold]/[/x] :smile:")
    console.fail("no [red]folder[/red]")
    shown = capsys.readouterr()
    assert shown.out == "models/[bold]/[/x] :smile:\n"
    assert shown.err == "Error: no [red]folder[/red]\n"


def test_progress_is_quiet_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with Console().progress("Working") as progress:
        progress(1, 2)
    assert capsys.readouterr() == ("", "")


def test_progress_shows_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with Console().progress("Working") as progress:
        progress(1, 2)
    shown = capsys.readouterr()
    assert "Working" in shown.err and "50%" in shown.err and shown.out == ""


def test_loading_seeds_what_is_random(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    import octavo

    monkeypatch.setattr(octavo, "load", lambda *_, **__: torch.rand(1).item(), raising=False)
    drawn = [Console().load("x", seed=seed) for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]
