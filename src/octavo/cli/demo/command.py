"""`octavo demo`: the whole story on a real model, from the first damage to the repair."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from octavo.cli.command import command
from octavo.cli.console import Console
from octavo.cli.demo.steps import STEPS
from octavo.cli.demo.story import MODEL, Story
from octavo.cli.options import Device, DeviceOption, ForceOption, SeedOption
from octavo.errors import OctavoError
from octavo.versions import versions

RESULTS = "demo.json"
MARKER = "vectors.bin"
"""A file of every page, by which `--force` knows one."""

_HELP = """Tell the whole story on a real model, in a minute or two and without a download.

`demo:minilm` is all-MiniLM-L6-v2, a sentence encoder in wide use. The demo shows the sites that can be
quantized, breaks the model with plain 8 bits, shows where it breaks, repairs it in two ways, and ends with
a file that computes in integers, checked and timed against FP32. It calibrates on 64 of the texts that come
with Octavo and measures on the others. With `-o` the quantized models are kept.

`--web` writes a static page instead: the model in 8 bits, in the browser, searching these texts as you type,
with times and sizes. The page needs no server but one for static files; npm, if it is here, puts the runtime
beside it, and without npm the page loads that from a public mirror.

Examples:

* `octavo demo`
* `octavo demo -o demo-models`
* `octavo demo --json > demo.json`
* `octavo demo --web page && python -m http.server -d page`
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
    web: Annotated[
        Path | None,
        typer.Option(
            "--web",
            metavar="DIR",
            help="Write a page that runs the model in the browser, and nothing else.",
            show_default="no page",
        ),
    ] = None,
    force: ForceOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
) -> None:
    if web is not None:
        if output is not None:
            raise OctavoError("--web writes the page alone; give --output in a run of its own")
        return _write_web(console, web, force, device, seed)
    with _folder(output, force) as folder:
        results = _tell(Story(console=console, folder=folder, output=output, device=device, seed=seed))
    if output is not None:
        console.show(f"Kept in {output}: {', '.join(entry['recipe'] for entry in results['recipes'])}.")
    console.result(results)


def _write_web(console: Console, output: Path, force: bool, device: Device, seed: int) -> None:
    from octavo.cli.demo.web import PAGE, RECIPE, write_page
    from octavo.files import check_output, write_folder
    from octavo.graph.sizes import float_bytes
    from octavo.methods import quantize
    from octavo.spec.presets import recipe
    from octavo.tasks.demo import split_demo_texts

    check_output(output, force, MARKER)
    encoder = console.load(MODEL, device=device, seed=seed)
    calibration, others = split_demo_texts()
    texts = [text for text in (*calibration, *others) if isinstance(text, str)]
    with console.progress(f"Quantizing by {RECIPE}"):
        model = quantize(encoder, recipe(RECIPE), calibration=calibration, seed=seed).to("cpu")
    with write_folder(output, force, MARKER) as draft, console.progress("Writing the page"):
        page = write_page(model, texts, draft, float_bytes(encoder))
    if page.missing is not None:
        console.warn(
            f"{page.missing}, so the page loads its runtime from a public mirror; it needs the network."
        )
    console.show(
        f"Wrote {output / PAGE}: {len(texts)} sentences, a model of {page.megabytes:.1f} MB"
        + (f", a runtime of {page.runtime_megabytes:.1f} MB." if page.missing is None else "."),
        f"Look at it: python -m http.server -d {quote(str(output))}, then http://localhost:8000",
    )
    console.result(
        {
            "page": str(output / PAGE),
            "texts": len(texts),
            "megabytes": page.megabytes,
            "runtime_megabytes": page.runtime_megabytes,
            "missing": page.missing,
            "versions": versions(),
        }
    )


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
