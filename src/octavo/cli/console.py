"""The console: what every command is given to show results, progress and warnings with, and how it fails."""

from __future__ import annotations

import json
import math
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console as RichConsole
from rich.console import RenderableType
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.rule import Rule
from rich.text import Text

from octavo.cli.options import Device, Head
from octavo.errors import OctavoError, OctavoWarning

if TYPE_CHECKING:
    from octavo.graph import Encoder

USER_ERROR = 2
INTERRUPTED = 130
# Tables in a pipe are for grep and awk: wide enough that no name is cut.
_PIPE_WIDTH = 160
_PROSE_WIDTH = 100


_PANEL = "Common to all commands"
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of tables.", rich_help_panel=_PANEL)
]
DebugOption = Annotated[
    bool,
    typer.Option(
        "--debug", help="Show Python's traceback and the libraries' warnings.", rich_help_panel=_PANEL
    ),
]


class Console:
    """What a command shows things with: results go to stdout, everything about the way there to stderr.

    The arguments are the options of all commands (see `octavo.cli.command`): one more here is one more there.
    """

    def __init__(self, *, as_json: JsonOption = False, debug: DebugOption = False) -> None:
        self.as_json = as_json
        self.debug = debug
        # Without markup: a name with brackets in it is printed as it is.
        plain: dict[str, Any] = {"markup": False, "emoji": False, "highlight": False}
        self._out = RichConsole(width=None if sys.stdout.isatty() else _PIPE_WIDTH, **plain)
        self._err = RichConsole(stderr=True, **plain)
        self._warned: set[str] = set()

    # -- stdout ----------------------------------------------------------------------------------------------

    def show(self, *things: RenderableType) -> None:
        """Print lines and tables for people; silent under --json. A string stays one line."""
        if not self.as_json:
            for thing in things:
                self._out.print(thing, soft_wrap=isinstance(thing, str))

    def tell(self, paragraph: str, style: str = "") -> None:
        """Print prose, wrapped to a width that reads well; silent under --json."""
        if not self.as_json:
            prose = Text(" ".join(paragraph.split()), style=style)
            self._out.print(prose, width=min(self._out.width, _PROSE_WIDTH))

    def heading(self, title: str) -> None:
        """Print a heading after an empty line; silent under --json."""
        if not self.as_json:
            self._out.print()
            self._out.print(Rule(title, align="left"), width=min(self._out.width, _PROSE_WIDTH))

    def write(self, text: str) -> None:
        """Print text exactly as it is, for files and pipes; silent under --json."""
        if not self.as_json:
            typer.echo(text, nl=not text.endswith("\n"))

    def result(self, document: dict[str, Any]) -> None:
        """Print the one JSON document of a command; silent without --json."""
        if self.as_json:
            typer.echo(json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False))

    # -- stderr ----------------------------------------------------------------------------------------------

    @contextmanager
    def progress(self, doing: str) -> Iterator[Callable[[int, int], None]]:
        """Show a bar with the time left, on a terminal only; yields `progress(done, total)`."""
        if not sys.stderr.isatty():
            yield lambda done, total: None
            return
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._err, transient=True) as bars:
            task = bars.add_task(doing, total=None)
            yield lambda done, total: bars.update(task, completed=done, total=total)

    def warn(self, message: str) -> None:
        """Print one yellow line, once."""
        if message not in self._warned:
            self._warned.add(message)
            self._line(f"Warning: {message}", "yellow")

    def note(self, message: str) -> None:
        """Print one dim line about the way to the results."""
        self._line(message, "dim")

    def fail(self, message: str) -> None:
        """Print one red line."""
        self._line(f"Error: {message}", "bold red")

    def _line(self, message: str, style: str) -> None:
        # soft_wrap: one line stays one line, whatever the width.
        self._err.print(Text(" ".join(message.split()), style=style), soft_wrap=True)

    # -- models ----------------------------------------------------------------------------------------------

    def load(
        self, model: str, *, head: Head | None = None, device: Device = Device.cpu, seed: int = 0
    ) -> Encoder:
        """Load and capture a model, after seeding everything that is random; `head` is for float models."""
        with self.progress(f"Loading {model}"):
            import octavo
            from octavo.graph.saved.write import is_saved

            _seed_everything(seed)
            chosen: Any = None if head is None or is_saved(Path(model)) else head.value
            return octavo.load(model, head=chosen, device=device)

    def read_texts(self, file: Path, limit: int | None = None) -> list[str | tuple[str, str]]:
        """Read a file of texts and say what was understood."""
        from octavo.tasks.texts import describe_texts, read_texts

        texts = read_texts(file)[:limit]
        self.note(f"{file}: {describe_texts(texts)}")
        return texts


@contextmanager
def report_errors(console: Console) -> Iterator[None]:
    """Run a command: errors that a user can cause become one sentence and exit code 2."""
    with warnings.catch_warnings():
        _route_warnings(console)
        try:
            yield
        except OctavoError as error:
            if console.debug:
                typer.echo(traceback.format_exc(), err=True)
            console.fail(str(error))
            raise typer.Exit(USER_ERROR) from None
        except KeyboardInterrupt:
            console.fail("interrupted")
            raise typer.Exit(INTERRUPTED) from None


def _route_warnings(console: Console) -> None:
    """Show Octavo's own warnings as one line each, and those of libraries under --debug only."""
    python_shows = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
        if issubclass(category, OctavoWarning):
            console.warn(str(message))
        elif console.debug:
            python_shows(message, category, *rest, **named)

    warnings.showwarning = show
    warnings.simplefilter("default")
    warnings.simplefilter("always", OctavoWarning)


def _seed_everything(seed: int) -> None:
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _finite(value: Any) -> Any:
    """Return the same document with None for NaN and infinity, which JSON lacks."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
