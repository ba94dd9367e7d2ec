"""The last step of `octavo demo`: a file that computes in integers, checked and timed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from rich.table import Table

from octavo.cli.demo.story import MODEL, Story
from octavo.cli.exportable import can_export
from octavo.runtime.backends import BACKENDS

if TYPE_CHECKING:
    from octavo.runtime.benchmark import Benchmark

DEPLOYED = "int8"
RUNTIMES = tuple(BACKENDS)
SHAPES = ((1, 32), (32, 128))


def runtimes_here() -> list[str]:
    """Return the runtimes that files can be written for and run in."""
    return [name for name in RUNTIMES if can_export() and find_spec(name) is not None]


def deploy(story: Story) -> None:
    """Export the int8 model for every runtime that is here, check that integers are used, and time it."""
    story.begin(f"Integers that really run: recipe {DEPLOYED}")
    runtimes = runtimes_here()
    if not runtimes:
        story.tell("ONNX Runtime is not installed; pip install 'octavo[onnx]' shows this step.")
        return
    story.tell(
        """So far, integers were simulated. This recipe is made to be deployed on CPUs: 8 bits at the inputs
        of all products. Outliers are folded into the weights where those can take them, and spill over into a
        few extra channels where they cannot. Exported to ONNX, it runs in integers:"""
    )
    story.try_recipe(DEPLOYED)
    files = [_export(story, runtime) for runtime in runtimes]
    measured = _timed(story, [f"{file}@{runtime}" for file, runtime in zip(files, runtimes, strict=True)])
    story.console.show(_table(measured))
    story.stress(_speedup(measured))
    story.results["deploy"] = measured.to_dict()


def _export(story: Story, runtime: str) -> str:
    from octavo.runtime.exporting import export
    from octavo.runtime.integers import check_integers

    path = story.folder / f"{DEPLOYED}-{runtime}.onnx"
    with story.console.progress(f"Exporting for {runtime}"):
        export(story.models[DEPLOYED], path, backend=runtime)
        report = check_integers(path, runtime)
    story.console.show(
        f"  {path.name}: {path.stat().st_size / 1e6:.1f} MB, {report.kernels} integer kernels, "
        "no quantized layer in float"
    )
    return str(path)


def _timed(story: Story, files: list[str]) -> Benchmark:
    from octavo.runtime.benchmark import bench

    with story.console.progress("Timing") as progress:
        return bench(
            [MODEL, *files],
            shapes=SHAPES,
            texts=story.sentences,
            seconds=1.0,
            memory=False,
            progress=progress,
        )


def _table(measured: Benchmark) -> Table:
    table = Table()
    table.add_column("artifact")
    for header in (*(f"ms, {batch} x {length} tokens" for batch, length in SHAPES), "mean cosine"):
        table.add_column(header, justify="right")
    for row in measured.rows:
        times = [f"{row.at(*shape).median_ms:.1f}" for shape in SHAPES]
        cosine = row.quality.cosine if row.quality else None
        table.add_row(row.name, *times, f"{cosine.mean:.4f}" if cosine else "")
    return table


def _speedup(measured: Benchmark) -> str:
    large = SHAPES[-1]
    first, *others = (row.at(*large).median_ms for row in measured.rows)
    return (
        f"A batch of {large[0]} x {large[1]} tokens runs {first / min(others):.1f} times as fast as FP32 "
        "in torch, measured in turns on this machine just now."
    )
