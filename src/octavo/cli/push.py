"""`octavo push`: a folder that was laid out for the hub, uploaded."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.command import command
from octavo.cli.console import Console

_HELP = """Upload a folder to the Hugging Face hub.

The folder is one that `octavo export --layout hub` wrote; the repository is made if it is not there. The
token is that of `hf auth login`, or HF_TOKEN. The model card is the folder's README.md: read it, and say
whose model it was and under which licence, before you share it.

Examples:

* `octavo export minilm-int8 -o minilm-hub --layout hub --texts texts.txt`
* `octavo push minilm-hub me/minilm-int8 --private`
* `octavo push minilm-hub them/minilm --pull-request`
"""


@command("push", _HELP)
def _push(
    console: Console,
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A folder of octavo export --layout hub.", show_default=False),
    ],
    repository: Annotated[
        str, typer.Argument(metavar="OWNER/NAME", help="The repository on the hub.", show_default=False)
    ],
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
    pull_request: Annotated[
        bool, typer.Option("--pull-request", help="Open a pull request instead of writing to the branch.")
    ] = False,
    message: Annotated[
        str, typer.Option("--message", "-m", metavar="TEXT", help="What the commit says.")
    ] = "Quantized with Octavo",
) -> None:
    from octavo.runtime.hub.push import check_folder, has_measurements, push

    if not has_measurements(check_folder(folder)):
        console.warn(
            "The model card says that nothing was measured; export again with --texts FILE to tell readers."
        )
    with console.progress(f"Uploading {folder}"):
        done = push(folder, repository, private=private, pull_request=pull_request, message=message)
    console.show(f"Uploaded {folder} to {done.url}", done.commit)
    console.result({"folder": str(folder), **asdict(done)})
