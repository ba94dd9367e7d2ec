"""What the range of weights does to activations: the paper's recipes with min-max and with MSE weights.

    python benchmarks/weight_ranges.py MODEL --glue GLUE_DIR -o results/methods/weight-ranges-NAME.json

Texts and measures are those of benchmarks/recipes.py. A few weights can be hundreds of times larger than the
others, and write the outliers of a sum: a range of least squared error cuts them, and the outliers with them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from rows import Plan, add_options, measure_rows

import octavo

RECIPES = ("w8a32", "w8a8", "w8a8-mp", "w8a8-per-embedding", "w8a8-peg3", "w8a8-peg6-noperm", "w8a8-peg6")
FFN_OUTPUT = ("layers.*.ffn_output.weight",)


def with_mse(recipe: octavo.Recipe) -> octavo.Recipe:
    """Return a recipe whose weights have ranges of least squared error."""
    assert recipe.weights is not None
    return replace(recipe, weights=replace(recipe.weights, estimator=octavo.Mse()))


def plans() -> Iterator[Plan]:
    """Yield every recipe with both estimators, and what tells the weights at fault from the others."""
    for name in RECIPES:
        recipe = octavo.recipe(name)
        yield {"way": f"`{name}`", "weights": "min-max"}, recipe
        yield {"way": f"`{name}`", "weights": "mse"}, with_mse(recipe)
    plain = octavo.recipe("w8a8")
    yield {"way": "`w32a8`", "weights": "float"}, octavo.recipe("w32a8")
    at_fault = octavo.Override(sites=FFN_OUTPUT, estimator=octavo.Mse())
    alone = replace(plain, overrides=(*plain.overrides, at_fault))
    yield {"way": "`w8a8`, the FFN's second layer alone", "weights": "mse"}, alone


def main() -> None:
    """Measure every row that the output lacks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    measure_rows(parser.parse_args(), "weight_ranges", plans())


if __name__ == "__main__":
    main()
