"""Every command: which options it offers, and that it reads each of them."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Annotated, Any, get_args

import pytest
import typer
from typer.testing import CliRunner

from octavo.cli.app import MODULES, PANELS, app
from octavo.cli.command import COMMANDS, command
from octavo.cli.console import Console
from octavo.errors import OctavoError

COMMON = ("--json", "--debug")
OPTIONS = {
    "demo": "--output --web --force --seed --device",
    "diagnose": "--texts --output --sensitivity --recipe --sequence --attention --task --data --text "
    "--label --limit --max-length --batch-size --force --seed --device --head",
    "sites": "--placement --weights --head",
    "recipes": "",
    "quantize": "--recipe --output --calibration --batch-size --limit --max-length --work --force --seed "
    "--device --head",
    "compare": "--recipes --calibration --texts --task --data --text --label --seeds --limit --batch-size "
    "--output --device --head",
    "evaluate": "--against --texts --task --data --text --label --vectors --split --max-length "
    "--batch-size --device --head --tokenizer",
    "export": "--output --to --layout --texts --against --model-onnx --model-quantized --backend --opset "
    "--check --target --reduce-range --force",
    "push": "--private --pull-request --message",
    "bench": "--backend --invariance --batches --lengths --texts --tokenizer --task --data --text --label "
    "--threads --seconds --memory --output --force",
    "finetune": "--output --task --data --text --label --dev --learning-rate --batch-size --epochs "
    "--max-length --seeds --mixed-precision --compile --log --force --seed --device",
    "qat": "--recipe --output --task --data --text --label --dev --learning-rate --batch-size --epochs "
    "--max-length --calibration-texts --mixed-precision --compile --log --force --seed --device",
    "distill": "--recipe --texts --output --learn --blocks --epochs --batch-size --learning-rate "
    "--range-learning-rate --limit --max-length --calibration-texts --temperature --relation --tokens "
    "--hidden --attention --force --seed --device --head",
    "reproduce": "--model --output --data --task --row --only-seed --start-seed --settings --engine "
    "--workers --trainings --address --stop-after --starts --mixed-precision --dry-run --device",
    "tables": "--table --output --details --figures",
}
"""What every command offers beside the options of all: a change here is a change of the interface."""


def offered(name: str) -> list[str]:
    """Return the first name of every option that typer offers for a command."""
    parsed: Any = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    return [p.opts[0] for p in parsed.params if p.param_type_name == "option" and p.name != "help"]


def read_names(function: Callable[..., Any]) -> set[str]:
    """Return every name that the body of a function reads, in functions inside it too."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    nodes = [node for statement in tree.body for node in ast.walk(statement)]
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_offers_its_options_and_those_of_all_commands(name: str) -> None:
    assert offered(name) == [*OPTIONS[name].split(), *COMMON]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_reads_every_option_that_it_offers(name: str) -> None:
    body = COMMANDS[name].body
    own = list(inspect.signature(body).parameters)
    assert [parameter for parameter in own if parameter not in read_names(body)] == []
    common = set(inspect.signature(COMMANDS[name].run).parameters) - set(own)
    assert common <= read_names(Console.__init__)


@pytest.mark.parametrize("name", COMMANDS)
def test_names_of_options_are_spelled_out(name: str) -> None:
    """Since versions of typer differ in what they make of a metavar that is the name in capitals."""
    for parameter in inspect.signature(COMMANDS[name].run).parameters.values():
        info = get_args(parameter.annotation)[1]
        if isinstance(info, typer.models.OptionInfo):
            assert str(info.default).startswith("--"), parameter.name


def test_every_command_is_listed_once() -> None:
    listed = [name for names in PANELS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS) == sorted(OPTIONS)
    assert {body.__module__ for body in (entry.body for entry in COMMANDS.values())} == {
        module.__name__ for module in MODULES
    }


def test_an_option_that_is_not_read_is_found() -> None:
    def ignores(console: Console, seed: int, device: str) -> None:
        console.show(device)

    assert read_names(ignores) == {"console", "device"}


@pytest.fixture
def greet(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    """An application with one command, which is made by the decorator and forgotten afterwards."""
    for name in list(COMMANDS):
        monkeypatch.setitem(COMMANDS, name, COMMANDS[name])

    @command("greet", "Greet somebody.")
    def _greet(
        console: Console,
        name: Annotated[str, typer.Argument(metavar="NAME")],
        times: Annotated[int, typer.Option("--times", min=1, help="How often.")] = 1,
    ) -> None:
        if name == "nobody":
            raise OctavoError("nobody cannot be greeted\nname somebody")
        console.show(*[f"Hello, {name}."] * times)
        console.result({"name": name, "times": times})

    made = typer.Typer()
    made.command("greet")(COMMANDS.pop("greet").run)
    return made


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["Ada"], 0, "Hello, Ada.\n", ""),
        (["Ada", "--times", "2"], 0, "Hello, Ada.\nHello, Ada.\n", ""),
        (["Ada", "--json"], 0, '{\n  "name": "Ada",\n  "times": 1\n}\n', ""),
        (["nobody"], 2, "", "Error: nobody cannot be greeted name somebody\n"),
    ],
    ids=["argument", "option", "json", "error"],
)
def test_the_decorator(greet: typer.Typer, arguments: list[str], code: int, out: str, err: str) -> None:
    result = CliRunner().invoke(greet, arguments)
    assert (result.exit_code, result.stdout, result.stderr) == (code, out, err)


def test_debug_shows_where_an_error_comes_from(greet: typer.Typer) -> None:
    assert "Traceback" in CliRunner().invoke(greet, ["nobody", "--debug"]).stderr
