"""The application: every command is a file of this package with a function `register(app)`."""

from __future__ import annotations

from typing import Annotated

import typer

from octavo.cli import (
    bench,
    compare,
    demo,
    diagnose,
    evaluate,
    export,
    quantize,
    recipes,
    reproduce,
    sites,
    tables,
    train,
)
from octavo.versions import __version__

_HELP = """Quantize transformer encoders to 8 bits and below.

See why a model breaks, repair it, and keep what you get in plain files. A MODEL is a hub id, a folder that
Hugging Face or Octavo saved, or `demo:minilm`, a real sentence encoder that needs no download.

Begin with `octavo demo`, then `octavo COMMAND --help`: every command explains itself with examples.
"""

# In the order of `octavo --help`: a first look, what there is, work, results.
_COMMANDS = (
    demo,
    diagnose,
    sites,
    recipes,
    quantize,
    compare,
    evaluate,
    export,
    bench,
    train,
    reproduce,
    tables,
)

app = typer.Typer(
    name="octavo",
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    # A traceback that reaches this far is a bug of ours, and is reported best as Python writes it.
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"octavo {__version__}")
        raise typer.Exit


@app.callback()
def _octavo(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


for _command in _COMMANDS:
    _command.register(app)


def main() -> None:
    """Run the command line; the entry point of the package."""
    app()
