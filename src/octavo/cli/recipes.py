"""`octavo recipes`: the presets, and any recipe as YAML."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from octavo.cli.command import command
from octavo.cli.completion import recipe_names
from octavo.cli.console import Console
from octavo.spec import TensorSpec, dump_recipe, recipe_to_dict
from octavo.spec.plugins import with_plugins
from octavo.spec.presets import PRESETS
from octavo.spec.presets import recipe as find_recipe

_HELP = """List the recipes that come with Octavo, or print one of them as YAML.

A recipe says what is quantized and how: bits of weights (w) and activations (a), ranges, and overrides for
some sites. Each preset names the row of the paper's table that it is. To make your own, write one to a file,
edit it and give the file to `--recipe`. With the path of a file, this command checks it.

Examples:

* `octavo recipes`
* `octavo recipes w8a8-peg6 > mine.yaml`
* `octavo recipes mine.yaml`
"""


@command("recipes", _HELP)
def _recipes(
    console: Console,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=recipe_names,
            help="A preset, or a YAML file to check.",
            show_default=False,
        ),
    ] = None,
) -> None:
    if name is None:
        console.show(_table(), "`octavo recipes NAME` prints one as YAML.")
        console.result({"recipes": [recipe_to_dict(preset) for preset in with_plugins(PRESETS).values()]})
        return
    chosen = find_recipe(name)
    console.write(dump_recipe(chosen))
    console.result(recipe_to_dict(chosen))


def _table() -> Table:
    table = Table()
    table.add_column("recipe", no_wrap=True)
    table.add_column("weights", no_wrap=True)
    table.add_column("activations", no_wrap=True)
    table.add_column("what it is", ratio=1)
    for preset in with_plugins(PRESETS).values():
        table.add_row(preset.name, _bits(preset.weights), _bits(preset.activations), preset.description)
    return table


def _bits(spec: TensorSpec | None) -> str:
    return "float" if spec is None else f"{spec.bits} bits"
