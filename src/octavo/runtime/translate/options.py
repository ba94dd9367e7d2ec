"""What backends and the translator agree on: how a graph is written, and how names in it end."""

from __future__ import annotations

from dataclasses import dataclass

INTEGERS = ".q"
"""What the name of a site's integers ends in."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a graph is written.

    Arguments:
        left_out: roles whose quantizers are not written.
        flattens: whether hidden states travel as matrices (batch · length, width) where only rows matter.
        fuses: whether linear layers of bytes are one operator of ONNX Runtime's own.
    """

    left_out: frozenset[str] = frozenset()
    flattens: bool = True
    fuses: bool = False
