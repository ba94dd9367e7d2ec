"""Rewrites of a quantized graph that a saved model names and loading applies again."""

from __future__ import annotations

from collections.abc import Callable

from octavo.graph.quantized import QuantizedEncoder
from octavo.graph.split import apply_split

TRANSFORMS: dict[str, Callable[[QuantizedEncoder], QuantizedEncoder]] = {"split": apply_split}
"""Every rewrite by its name in `octavo.json`. Each depends on the captured graph, the recipe and the groups alone."""
