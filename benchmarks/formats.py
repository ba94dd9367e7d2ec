"""Compare FP8 with integers of 8 bits, plain and in groups: cosine to the float model, in both placements.

    python benchmarks/formats.py demo:minilm --glue GLUE_DIR -o results/methods/formats-minilm.json

Texts and measures are those of benchmarks/recipes.py; no format was tuned on them. Weights have a scale per
row, activations one per tensor over all that was seen, unless the row says otherwise; norms stay in float.
Groups are those of what is as wide as the residual stream.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from rows import STREAM, Plan, add_options, measure_rows

import octavo
from octavo.spec import Format, Placement
from octavo.spec.granularity import Sizes

PRESETS: dict[Placement, str] = {"linear-inputs": "int8", "full": "int8-full"}


def plain(placement: Placement, format: Format, **activations: Any) -> octavo.Recipe:
    """Return per-tensor activations and per-row weights of a format."""
    symmetric = format.is_float
    return octavo.Recipe(
        name=format.variant_name,
        placement=placement,
        weights=octavo.TensorSpec(symmetric=True, granularity=octavo.PerChannel(), format=format),
        activations=octavo.TensorSpec(
            **{"symmetric": symmetric, "estimator": octavo.AllMinMax(), "format": format, **activations}
        ),
        overrides=(octavo.Override(roles=("norm_weight",), off=True),),
    )


def grouped(placement: Placement, sizes: Sizes) -> octavo.Recipe:
    """Return INT8 with six groups."""
    int8 = plain(placement, octavo.Integer())
    groups = octavo.PerGroup(groups=6, permute=True, at_most=True, sizes=sizes)
    stream = octavo.Override(roles=STREAM, granularity=groups, optional=True)
    return replace(int8, overrides=(*int8.overrides, stream))


def plans(asked: list[str]) -> Iterator[Plan]:
    """Yield every row, or those that are asked for."""
    token = {"dynamic": True, "granularity": octavo.PerToken(), "estimator": octavo.MinMax()}
    for placement, preset in PRESETS.items():
        ways = {
            "E4M3": plain(placement, octavo.E4M3()),
            "E5M2": plain(placement, octavo.E5M2()),
            "INT8": plain(placement, octavo.Integer()),
            "INT8, 6 even groups": grouped(placement, "even"),
            "INT8, 6 optimal groups": grouped(placement, "optimal"),
            f"`{preset}`": octavo.recipe(preset),
            "E4M3, a range per token": plain(placement, octavo.E4M3(), **token),
            "INT8, a range per token": plain(placement, octavo.Integer(), **token),
        }
        for way, recipe in ways.items():
            if not asked or way in asked:
                yield {"placement": placement, "way": way}, recipe


def main() -> None:
    """Measure every row that the output lacks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--ways", nargs="+", default=[], help="only these rows")
    options = parser.parse_args()
    measure_rows(options, "formats", plans(options.ways))


if __name__ == "__main__":
    main()
