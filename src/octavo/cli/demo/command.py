"""`octavo demo`: the whole story on a real model, from the first damage to the repair."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from octavo.cli.command import command
from octavo.cli.console import Console
from octavo.cli.demo.steps import STEPS
from octavo.cli.demo.story import Story
from octavo.cli.options import Device, DeviceOption, ForceOption, SeedOption
from octavo.versions import versions

RESULTS = "demo.json"

_HELP = """Tell the whole story on a real model, in a minute or two and without a download.

`demo:minilm` is all-MiniLM-L6-v2, a sentence encoder in wide use. The demo shows the sites that can be
quantized, breaks the model with plain 8 bits, shows where it breaks, repairs it in two ways, and ends with
a file that computes in integers, checked and timed against FP32. It calibrates on 64 of the texts that come
with Octavo and measures on the others. With `-o` the quantized models are kept.

Examples:

* `octavo demo`
* `octavo demo -o demo-models`
* `octavo demo --json > demo.json`
"""


@command("demo", _HELP)
def _demo(
    console: Console,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="Keep the quantized models and the results here.",
            show_default="nothing is kept",
        ),
    ] = None,
    force: ForceOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
) -> None:
    with _folder(output, force) as folder:
        results = _tell(Story(console=console, folder=folder, output=output, device=device, seed=seed))
    if output is not None:
        console.show(f"Kept in {output}: {', '.join(entry['recipe'] for entry in results['recipes'])}.")
    console.result(results)


def _tell(story: Story) -> dict[str, Any]:
    """Go through all steps and return the results, which are also written to a file."""
    started = time.perf_counter()
    for step in STEPS:
        step(story)
    seconds = round(time.perf_counter() - started, 1)
    results = {**story.results, "seconds": seconds, "seed": story.seed, "versions": versions()}
    (story.folder / RESULTS).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return results


@contextmanager
def _folder(output: Path | None, force: bool) -> Iterator[Path]:
    """Yield where models are written: the output, complete or absent, or a folder that vanishes."""
    if output is None:
        with tempfile.TemporaryDirectory(prefix="octavo-demo-") as temporary:
            yield Path(temporary)
        return
    from octavo.files import write_folder

    with write_folder(output, force, marker=RESULTS) as draft:
        yield draft
