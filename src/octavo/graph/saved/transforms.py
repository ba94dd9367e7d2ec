"""Rewrites of a quantized graph that a saved model names and loading applies again."""

from __future__ import annotations

from collections.abc import Callable

from octavo.graph.quantizers.attach import QuantizedEncoder
from octavo.graph.rewrites.fold import TRANSFORM as FOLD
from octavo.graph.rewrites.fold import fold
from octavo.graph.rewrites.integer import TRANSFORM as INTEGER_FUNCTIONS
from octavo.graph.rewrites.integer import apply_integer
from octavo.graph.rewrites.split import TRANSFORM as SPLIT
from octavo.graph.rewrites.split import apply_split

TRANSFORMS: dict[str, Callable[[QuantizedEncoder], QuantizedEncoder]] = {
    SPLIT: apply_split,
    INTEGER_FUNCTIONS: apply_integer,
    FOLD: fold,
}
"""Every rewrite by its name in `octavo.json`. Each needs the captured graph, the recipe and the groups."""
