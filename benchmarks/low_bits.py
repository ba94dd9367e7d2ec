"""Every post-training method alone and together, at few bits and in both placements, on one model.

    python benchmarks/low_bits.py MODEL --glue GLUE_DIR -o FILE [--bits W6A6,W4A4] [--methods NAME;NAME]

Texts and measures are those of benchmarks/recipes.py. Weights have a scale per row and their ranges from the
MSE below 8 bits; tables have 8 bits; weights of norms are float in `linear-inputs` and have 8 bits in `full`,
where every tensor is quantized. Activations have one range each, all that was seen, unless the method says
otherwise. A row is written as soon as it is measured, and never measured twice.

The compositions were chosen on demo:minilm and gte-small; other models prove them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace

from equalization import NORMS
from rows import STREAM, Plan, add_options, measure_rows

import octavo
from octavo.spec import Estimator, Override, Pass, PerGroup, PerTensor, Placement, Recipe, TensorSpec

WIDTHS = {f"W{w}A{a}": (w, a) for w, a in ((8, 8), (6, 6), (4, 8), (4, 4))}
PLACEMENTS: tuple[Placement, ...] = ("linear-inputs", "full")


@dataclass(frozen=True, kw_only=True)
class Method:
    """What a row does beyond rounding to nearest with the ranges that were seen."""

    passes: tuple[Pass, ...] = ()
    estimator: Estimator = octavo.AllMinMax()  # noqa: RUF009
    groups: bool = False


# Values, their context and the hidden layer are read by products and linear layers alone in either placement.
INNER = ("value", "attention_context", "ffn_hidden")
EQUALIZE = octavo.Equalize(roles=(*NORMS, *INNER), optional=True)
SPILL = octavo.Spill(roles=("ffn_hidden",), optional=True)
GPTQ = octavo.Gptq(relative=True, shrinkage=0.9)
ADAROUND = octavo.AdaRound(iterations=300, shrinkage=0.7, asymmetric=False)
CLIP, TUNE = octavo.ClipTokens(), octavo.TuneRanges()
CORRECT = octavo.BiasCorrection(guarded=True)

ALONE = {
    "nothing": Method(),
    "equalize": Method(passes=(EQUALIZE,)),
    "spill": Method(passes=(SPILL,)),
    "optimal groups": Method(groups=True),
    "mse": Method(estimator=octavo.Mse()),
    "mse, weighted": Method(estimator=octavo.Mse(weighted=True)),
    "clip-tokens": Method(passes=(CLIP,)),
    "tune-ranges": Method(passes=(TUNE,)),
    "gptq": Method(passes=(octavo.Gptq(),)),
    "gptq, tokens alike": Method(passes=(GPTQ,)),
    "adaround": Method(passes=(ADAROUND,)),
    "bias-correction": Method(passes=(octavo.BiasCorrection(),)),
}


def methods(placement: Placement) -> dict[str, Method]:
    """Return every row of a placement: each method alone, and the compositions."""
    # Where a sum reads norm outputs as well, nothing can be folded into weights: groups take its place.
    full = placement == "full"
    around = () if full else NORMS
    inner = replace(EQUALIZE, roles=(*around, "value", "attention_context"))
    every = replace(EQUALIZE, roles=(*around, *INNER))
    return ALONE | {
        "equalize, spill, gptq, bias-correction": Method(passes=(inner, SPILL, GPTQ, CORRECT), groups=full),
        "equalize, gptq, clip-tokens, bias-correction": Method(
            passes=(every, GPTQ, CLIP, CORRECT), groups=full
        ),
    }


def recipe(placement: Placement, weights: int, activations: int, method: Method) -> Recipe:
    """Return the recipe of one row."""
    rows = TensorSpec(
        bits=weights,
        symmetric=True,
        granularity=octavo.PerChannel(),
        estimator=octavo.MinMax() if weights == 8 else octavo.Mse(),
    )
    norms = (
        Override(roles=("norm_weight",), off=True, optional=True)
        if placement == "linear-inputs"
        else Override(roles=("norm_weight",), bits=8, granularity=PerTensor(), symmetric=True, optional=True)
    )
    overrides = [norms]
    if weights < 8:
        tables = Override(
            roles=("embedding_weight",), bits=8, symmetric=True, estimator=octavo.MinMax(), optional=True
        )
        overrides.append(tables)
    if method.groups:
        groups = PerGroup(groups=6, permute=True, at_most=True, sizes="optimal")
        overrides.append(Override(roles=STREAM, granularity=groups, optional=True))
    return Recipe(
        name=f"w{weights}a{activations}",
        placement=placement,
        weights=rows,
        activations=TensorSpec(bits=activations, estimator=method.estimator),
        overrides=tuple(overrides),
        passes=method.passes,
    )


def plans(bits: list[str], placements: list[Placement], names: list[str]) -> Iterator[Plan]:
    """Yield every row: what it is, and its recipe."""
    for width in bits:
        for placement in placements:
            for name in names or methods(placement):
                about = {"bits": width, "placement": placement, "method": name}
                yield about, recipe(placement, *WIDTHS[width], methods(placement)[name])


def main() -> None:
    """Measure every row that the output lacks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--bits", default=",".join(WIDTHS), help="widths, separated by commas")
    parser.add_argument("--placements", default=",".join(PLACEMENTS), help="separated by commas")
    parser.add_argument("--methods", default="", help="names, separated by semicolons; all unless given")
    options = parser.parse_args()
    names = options.methods.split(";") if options.methods else []
    measure_rows(options, "low_bits", plans(options.bits.split(","), options.placements.split(","), names))


if __name__ == "__main__":
    main()
