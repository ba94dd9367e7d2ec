"""What makes a function a command: `@command` adds the options of all commands and reports errors.

```python
@command("sites", _HELP)
def _sites(console: Console, model: ModelArgument, weights: Annotated[bool, ...] = False) -> None:
    console.show(...)
```
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from octavo.cli.console import Console, report_errors


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command of the application.

    Arguments:
        body: the function as written; its first parameter is the console.
        run: the function that typer calls, with the body's other parameters and the options of all commands.
    """

    name: str
    help: str
    body: Callable[..., None]
    run: Callable[..., None]


COMMANDS: dict[str, Command] = {}
"""Every command by name, filled by `@command`; `octavo.cli.app` says in which order they are listed."""


def command(name: str, help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that registers a function as a command.

    The function is called with an open console first, then with its own options by name. It declares only
    the options that it reads; those of all commands are the arguments of `Console`.
    """

    def register(body: Callable[..., None]) -> Callable[..., None]:
        COMMANDS[name] = Command(name=name, help=help, body=body, run=_with_console(body))
        return body

    return register


def _with_console(body: Callable[..., None]) -> Callable[..., None]:
    _, *own = _parameters(body)
    _, *common = _parameters(Console.__init__)

    def run(**given: Any) -> None:
        console = Console(**{parameter.name: given.pop(parameter.name) for parameter in common})
        with report_errors(console):
            body(console, **given)

    parameters = [*own, *common]
    # typer reads both: signatures for what there is, annotations for forward references
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parameters(function: Callable[..., None]) -> list[inspect.Parameter]:
    """Return the parameters of a function by name only, their annotations as types instead of text."""
    hints = get_type_hints(function, include_extras=True)
    return [
        parameter.replace(
            kind=inspect.Parameter.KEYWORD_ONLY,
            annotation=hints.get(parameter.name, inspect.Parameter.empty),
        )
        for parameter in inspect.signature(function).parameters.values()
    ]
