"""What groups of optimal sizes keep, everything in 8 bits, simulated, beside the paper's even ones.

    python benchmarks/optimal_groups.py --calibration FILE --texts FILE [-o FILE] MODEL [MODEL ...]

Cosines are to the float model on `--texts`; what those chose they cannot prove. The rows build on one
another: six groups at the FFN's input, output and residual sum, as in `w8a8-peg6`; weights per channel; six
groups at the FFN's hidden layer as well; and the recipe int8-full.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from output import add_options, report

import octavo
from octavo.errors import OctavoWarning
from octavo.fidelity import Reference
from octavo.spec import AllMinMax, Override, PerChannel, PerGroup, Recipe, TensorSpec
from octavo.spec.granularity import Sizes
from octavo.versions import versions

SIZES: tuple[Sizes, ...] = ("even", "optimal")


def peg(sizes: Sizes, per_channel: bool, hidden: bool) -> Recipe:
    recipe = octavo.recipe("w8a8-peg6")
    groups = PerGroup(groups=6, permute=True, sizes=sizes)
    overrides = [replace(recipe.overrides[0], granularity=groups)]
    if hidden:
        overrides.append(Override(roles=("ffn_hidden",), granularity=groups, estimator=AllMinMax()))
    if per_channel:
        weights = TensorSpec(symmetric=True, granularity=PerChannel())
        recipe = replace(recipe, weights=weights)
    return replace(recipe, overrides=tuple(overrides))


def measured(model: str, calibration: list[str], texts: list[str]) -> dict[str, Any]:
    encoder = octavo.load(model)
    reference = Reference.of_texts(encoder, texts)
    recipes = {
        f"PEG-6{', weights per channel' * c}{', hidden in 6 groups' * h}, {sizes}": peg(sizes, c, h)
        for c, h in ((False, False), (True, False), (True, True))
        for sizes in SIZES
    }
    recipes |= {name: octavo.recipe(name) for name in ("w8a8", "int8-full")}
    found = {}
    for name, recipe in recipes.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OctavoWarning)
            quantized = octavo.quantize(encoder, recipe, calibration=calibration)
        cosine = reference.compare(quantized).to_dict()["cosine"]
        found[name] = {key: round(value, 4) for key, value in cosine.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+")
    parser.add_argument("--calibration", required=True, help="a text a line")
    parser.add_argument("--texts", required=True, help="to measure with, a text a line")
    add_options(parser)
    options = parser.parse_args()
    calibration, texts = (
        Path(file).read_text(encoding="utf-8").splitlines() for file in (options.calibration, options.texts)
    )
    result = {Path(model).name: measured(model, calibration, texts) for model in options.models}
    counts = {"calibration": len(calibration), "texts": len(texts)}
    report({**counts, "cosine": result, "versions": versions()}, options.output)


if __name__ == "__main__":
    main()
