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
    "equalize, norms and values; spill, hidden": (
        octavo.Equalize(roles=VALUES, skip_roles=("ffn_hidden",), optional=True),
        SPILL,
    ),
}


def at(bits: int, passes: tuple[AtSites, ...]) -> Recipe:
    """Return the recipe int8 with other bits and passes."""
    int8 = octavo.recipe("int8")
    assert int8.weights is not None and int8.activations is not None
    return replace(
        int8,
        name=f"w{bits}a{bits}",
        weights=replace(int8.weights, bits=bits),
        activations=replace(int8.activations, bits=bits),
        passes=passes,
    )


def plans(bits: list[int]) -> Iterator[Plan]:
    """Yield every row."""
    for width in bits:
        for method, passes in METHODS.items():
            yield {"bits": width, "method": method}, at(width, passes)


def main() -> None:
    """Measure every row that the output lacks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--bits", type=int, nargs="+", default=[8, 6])
    options = parser.parse_args()
    measure_rows(options, "equalization", plans(options.bits))


if __name__ == "__main__":
    main()
