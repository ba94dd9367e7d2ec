"""Measure every way to equalize channels, and spilling, in place of the passes of int8, at 8 and at 6 bits.

    python benchmarks/equalization.py MODEL --glue GLUE_DIR -o FILE [--bits 8]

Texts and measures are those of benchmarks/recipes.py. All is simulated; only what products read is quantized,
weights per channel.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from rows import Plan, add_options, measure_rows

import octavo
from octavo.spec import Recipe
from octavo.spec.equalization import AtSites

NORMS = ("embedding_norm", "layer_output", "attention_input", "ffn_input", "final_norm")
HIDDEN = (*NORMS, "ffn_hidden")
VALUES = (*HIDDEN, "value", "attention_context")
SCORES = (*VALUES, "query", "key")

SPILL = octavo.Spill(roles=("ffn_hidden",), optional=True)

LAST = "equalize, values, spill hidden"
METHODS: dict[str, tuple[AtSites, ...]] = {
    "nothing": (),
    "fold, norms": (octavo.Fold(roles=NORMS, optional=True),),
    "smooth-quant, norms": (octavo.SmoothQuant(roles=NORMS, optional=True),),
    "migrate-gamma, norms": (octavo.MigrateGamma(roles=NORMS, optional=True),),
    "scale, norms": (octavo.ShiftAndScale(roles=NORMS, optional=True, shift=False),),
    "shift-and-scale, norms": (octavo.ShiftAndScale(roles=NORMS, optional=True),),
    "equalize, norms": (octavo.Equalize(roles=NORMS, optional=True),),
    "fold, and hidden": (octavo.Fold(roles=HIDDEN, optional=True),),
    "smooth-quant, and hidden": (octavo.SmoothQuant(roles=HIDDEN, optional=True),),
    "equalize, and hidden": (octavo.Equalize(roles=HIDDEN, optional=True),),
    "equalize, and values": (octavo.Equalize(roles=VALUES, optional=True),),
    "equalize, and scores": (octavo.Equalize(roles=SCORES, optional=True),),
    "spill, hidden": (SPILL,),
    LAST: (
        octavo.Equalize(roles=VALUES, skip_roles=("ffn_hidden",), optional=True),
        SPILL,
    ),
}


# What limits the last of them: it again, with all of one kind left in float.
FLOATS = {
    "linear weights in float": (octavo.Override(roles=("linear_weight",), off=True), METHODS[LAST]),
    "hidden in float": (octavo.Override(roles=("ffn_hidden",), off=True), METHODS[LAST][:1]),
}


def at(bits: int, passes: tuple[AtSites, ...], *overrides: octavo.Override) -> Recipe:
    """Return the recipe int8 with other bits and passes."""
    int8 = octavo.recipe("int8")
    assert int8.weights is not None and int8.activations is not None
    return replace(
        int8,
        name=f"w{bits}a{bits}",
        weights=replace(int8.weights, bits=bits),
        activations=replace(int8.activations, bits=bits),
        overrides=(*int8.overrides, *overrides),
        passes=passes,
    )


def plans(bits: list[int], asked: list[str]) -> Iterator[Plan]:
    """Yield every row, or those that are asked for."""
    for width in bits:
        recipes = {name: at(width, passes) for name, passes in METHODS.items()}
        recipes |= {f"the last, {kind}": at(width, passes, off) for kind, (off, passes) in FLOATS.items()}
        for name, recipe in recipes.items():
            if not asked or name in asked:
                yield {"bits": width, "method": name}, recipe


def main() -> None:
    """Measure every row that the output lacks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--bits", type=int, nargs="+", default=[8, 6])
    parser.add_argument("--methods", nargs="+", default=[], help="only these rows")
    options = parser.parse_args()
    measure_rows(options, "equalization", plans(options.bits, options.methods))


if __name__ == "__main__":
    main()
