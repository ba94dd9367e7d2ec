"""The steps of `octavo demo`, in order; each one tells, works and shows.

A further step is a function of the story, added to `STEPS`: it finds models and texts in the story, writes
below `story.folder`, prints with `story.begin`, `story.tell` and `story.console.show`, and adds to
`story.results`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.table import Table

from octavo.cli.demo.deploy_step import DEPLOYED, deploy, runtimes_here
from octavo.cli.demo.neighbours import find_example, similarities
from octavo.cli.demo.report_step import report
from octavo.cli.demo.story import MODEL, Story
from octavo.cli.sites import shape_in_words
from octavo.cli.summary import in_words, megabytes
from octavo.spec import AllMinMax, Override, PerEmbedding, Recipe

if TYPE_CHECKING:
    from torch import Tensor

    from octavo.graph import Site

FLOAT = "FP32"
PARAPHRASE = ("The ferry was delayed by fog.", "Because of fog, the ferry left late.")
FEED_FORWARD = ("ffn_input", "ffn_output", "ffn_residual")
BROKEN, MIXED, GROUPED = "w8a8", "w8a8-mp", "w8a8-peg6"


def meet(story: Story) -> None:
    """Load the model and show its sites; one that the last step could not write is refused here."""
    from octavo.graph.sizes import float_bytes
    from octavo.runtime.exporting import check_exportable

    story.begin("A real model and its sites")
    story.encoder = encoder = story.console.load(MODEL, device=story.device, seed=story.seed)
    if runtimes_here():
        check_exportable(encoder)
    activations, weights, size = encoder.activation_sites, encoder.weight_sites, float_bytes(encoder)
    story.tell(
        f"""{MODEL} is all-MiniLM-L6-v2, a sentence encoder in wide use: it turns a text into an embedding of
        {encoder.config.hidden_size} numbers, so that texts of like meaning lie close together. Its weights
        take {megabytes(size)} as 32-bit floats (FP32). Octavo captured its graph and found every place where
        a tensor can be quantized, a "site": {len(activations)} activations and {len(weights)} weights.
        These are the activations of the first layer:"""
    )
    story.console.show(_site_table([site for site in activations if site.name.startswith("layers.0.")]))
    story.results |= {
        "model": MODEL,
        "activation_sites": len(activations),
        "weight_sites": len(weights),
        "fp32_bytes": size,
    }


def measure(story: Story) -> None:
    """Run the float model, and say how the others will be compared with it."""
    from octavo.tasks.demo import split_demo_texts

    story.begin("What the float model does")
    story.calibration, story.texts = split_demo_texts()
    with story.console.progress("Running the float model"):
        close = similarities(story.encoder, PARAPHRASE)[0, 1]
        cosines = story.similarities[FLOAT] = similarities(story.encoder, story.sentences)
    story.tell(
        f"""Octavo brings texts of its own: {len(story.calibration)} of them will calibrate the quantized
        models, the {len(story.texts)} others judge them. The float model sees what means the same: these two
        have a cosine of {close:.2f}, where two sentences at random have about {_typical(cosines):.2f}:"""
    )
    story.console.show(*(f"  {sentence}" for sentence in PARAPHRASE))
    story.tell(
        """A quantized model should give the same embeddings. Two measures: the cosine between the float and
        the quantized embedding of each text (1 is perfect), and how many of a text's ten nearest texts stay
        the same ("neighbours kept")."""
    )
    story.results |= {"calibration_texts": len(story.calibration), "texts": len(story.texts)}


def break_it(story: Story) -> None:
    """Quantize everything to 8 bits per tensor, and say where it hurts."""
    story.begin(f"Plain 8 bits break it: recipe {BROKEN}")
    story.tell("Every weight and activation in 8 bits, with one range for each tensor: the textbook way.")
    _stress_numbers(story, story.try_recipe(BROKEN))
    name, spacing = _widest(story)
    spans = _spans(story, name)
    typical, widest = float(spans.median()), float(spans.max())
    story.tell(
        f"""Why? 8 bits are 256 levels, and the widest dimension of a tensor decides how far apart they are.
        Look at {name}: one of its {len(spans)} dimensions spans {widest:.0f}, the median one {typical:.1f}.
        The levels for all of them are {spacing:.2f} apart, so the median dimension is left with about
        {typical / spacing:.0f} of the 256."""
    )
    story.results["outlier"] = {"site": name, "widest": widest, "median": typical, "step": spacing}


def repair_with_bits(story: Story) -> None:
    """Give 16 bits to the feed-forward tensors."""
    story.begin(f"Repair 1, 16 bits where it hurts: recipe {MIXED}")
    story.tell(
        """The outliers live in three tensors of every layer: ffn_input, ffn_output and ffn_residual, around
        the feed-forward network (FFN). This recipe gives them 16 bits and leaves everything else at 8."""
    )
    _stress_numbers(story, story.try_recipe(MIXED))


def repair_with_groups(story: Story) -> None:
    """Keep 8 bits, but sort the dimensions into groups."""
    story.begin(f"Repair 2, 8 bits everywhere: recipe {GROUPED}")
    story.tell(
        """And where the hardware has 8 bits only? Sort the dimensions of those three tensors by their range
        into six groups, each with levels of its own (per-embedding-group quantization, PEG). The outliers
        share one group and no longer spoil the others."""
    )
    numbers = story.try_recipe(GROUPED)
    _stress_numbers(story, numbers)
    name, spacing = _widest(story)
    spacings = sorted(story.models[GROUPED].quantizers[name].scale.tolist())
    story.tell(
        f"""In {name} the levels, {spacing:.2f} apart before, are now {spacings[0]:.3f} to
        {spacings[-2]:.3f} apart in five of the six groups; only in the group with the outliers they are
        {spacings[-1]:.2f} apart."""
    )


def conclude(story: Story) -> None:
    """Show one text's neighbour through all models, and all numbers in a table."""
    story.begin("All together")
    story.console.show(_table(story))
    story.tell(
        """Weights are counted on disk; these recipes differ in their activations only. Quantization is
        simulated here: computed in float, rounded to where the integers are."""
    )
    _show_example(story)
    story.tell("Now your own model, with a few dozen texts like those it will see, one per line:")
    story.console.show(f"  octavo quantize MODEL --recipe {DEPLOYED} --calibration FILE -o DIR")
    story.tell(f"{DEPLOYED} repairs all this in another way and runs on CPUs as it is: see the last step.")


STEPS: tuple[Callable[[Story], None], ...] = (
    meet,
    measure,
    break_it,
    repair_with_bits,
    repair_with_groups,
    conclude,
    report,
    deploy,
)


def _site_table(sites: list[Site]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2))
    for site in sites:
        table.add_row(site.name, shape_in_words(site))
    return table


def _typical(cosines: Any) -> float:
    """Return the mean over all pairs of different texts; the diagonal holds -1."""
    count = len(cosines)
    return float((cosines.sum() + count) / (count * (count - 1)))


def _stress_numbers(story: Story, numbers: dict[str, Any]) -> None:
    story.stress(
        f"""Activations {in_words(numbers["activation_sites"])}; mean cosine {numbers["cosine"]["mean"]:.3f},
        worst {numbers["cosine"]["worst"]:.3f}; {numbers["neighbours"]:.0%} of neighbours kept."""
    )


def _widest(story: Story) -> tuple[str, float]:
    """Find the feed-forward activation whose levels are farthest apart in plain 8 bits, and how far."""
    sites = (site.name for site in story.encoder.activation_sites if site.role in FEED_FORWARD)
    spacings = {name: float(story.models[BROKEN].quantizers[name].scale.max()) for name in sites}
    return max(spacings.items(), key=lambda item: item[1])


def _spans(story: Story, site: str) -> Tensor:
    """Return the range of every dimension of an activation, (width,), found by a recipe for it alone."""
    import octavo

    look = Override(sites=(site,), bits=8, granularity=PerEmbedding(), estimator=AllMinMax())
    alone = Recipe(name="spans", weights=None, activations=None, overrides=(look,))
    with story.console.progress(f"Looking at {site}") as progress:
        quantizer = octavo.quantize(story.encoder, alone, story.calibration, progress=progress).quantizers[
            site
        ]
    return quantizer.scale * (quantizer.high - quantizer.low)


def _show_example(story: Story) -> None:
    example = find_example(story.sentences, story.similarities, FLOAT, BROKEN)
    if example is None:
        return
    story.tell(
        f"""What that means in use, at the text where {BROKEN} errs most clearly. Of {len(story.sentences)}
        sentences, which one is nearest to this?"""
    )
    story.console.show(f"  {example.text}")
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, nearest in example.nearest.items():
        table.add_row(name, nearest)
    story.console.show(table)
    story.results["example"] = {"text": example.text, "nearest": example.nearest}


def _table(story: Story) -> Table:
    table = Table()
    for header in ("recipe", "activations"):
        table.add_column(header, no_wrap=True)
    for header in ("mean cosine", "worst cosine", "neighbours kept", "weights"):
        table.add_column(header, justify="right")
    table.add_row(FLOAT, "float", "1", "1", "100%", megabytes(story.results["fp32_bytes"]))
    for numbers in story.results["recipes"]:
        table.add_row(
            numbers["recipe"],
            in_words(numbers["activation_sites"]),
            f"{numbers['cosine']['mean']:.3f}",
            f"{numbers['cosine']['worst']:.3f}",
            f"{numbers['neighbours']:.0%}",
            megabytes(numbers["weights_bytes"]),
        )
    return table
