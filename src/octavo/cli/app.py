"""The application: which commands there are, and in which order `octavo --help` lists them."""

from __future__ import annotations

from typing import Annotated

import typer

from octavo.cli import (
    bench,
    compare,
    diagnose,
    distill,
    evaluate,
    export,
    push,
    quantize,
    recipes,
    reproduce,
    sites,
    tables,
    train,
)
from octavo.cli.command import COMMANDS
from octavo.cli.demo import command as demo
from octavo.versions import __version__

_HELP = """Quantize transformer encoders to 8 bits and below.

See why a model breaks, repair it, and keep what you get in plain files. A MODEL is a hub id, a folder that
Hugging Face or Octavo saved, or `demo:minilm`, a real sentence encoder that needs no download.

Begin with `octavo demo`, then `octavo COMMAND --help`: every command explains itself with examples.
"""

# Imported for what they register: each decorates its functions with `@command`.
MODULES = (
    bench,
    compare,
    demo,
    diagnose,
    distill,
    evaluate,
    export,
    push,
    quantize,
    recipes,
    reproduce,
    sites,
    tables,
    train,
)

PANELS = {
    "Look": ("demo", "diagnose", "sites", "recipes"),
    "Quantize": ("quantize", "compare", "evaluate"),
    "Train": ("distill", "finetune", "qat"),
    "Deploy": ("export", "push", "bench"),
    "The paper's tables": ("reproduce", "tables"),
}
"""The commands in the order of `octavo --help`."""

app = typer.Typer(
    name="octavo",
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    # A traceback that reaches this far is a bug of ours, and is reported best as Python writes it.
    pretty_exceptions_enable=False,
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


for _panel, _names in PANELS.items():
    for _name in _names:
        _command = COMMANDS[_name]
        app.command(_name, help=_command.help, rich_help_panel=_panel)(_command.run)


def main() -> None:
    """Run the command line; the entry point of the package."""
    app()
