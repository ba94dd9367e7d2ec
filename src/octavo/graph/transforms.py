"""Rewrites of a quantized graph that a saved model names and loading applies again."""

from __future__ import annotations

from collections.abc import Callable

from octavo.graph.fold import TRANSFORM as FOLD
from octavo.graph.fold import fold
from octavo.graph.integer import TRANSFORM as INTEGER_FUNCTIONS
from octavo.graph.integer import apply_integer
from octavo.graph.quantized import QuantizedEncoder
from octavo.graph.split import TRANSFORM as SPLIT
from octavo.graph.split import apply_split

TRANSFORMS: dict[str, Callable[[QuantizedEncoder], QuantizedEncoder]] = {
    SPLIT: apply_split,
    INTEGER_FUNCTIONS: apply_integer,
    FOLD: fold,
}
"""Every rewrite by its name in `octavo.json`. Each needs the captured graph, the recipe and the groups."""
