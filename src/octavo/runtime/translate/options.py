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
        unsigned_weights: whether signed 8-bit weights of linear layers are stored shifted by 128.
        exact_floats: whether norms, softmax and activation functions give the same bits on every processor.
    """

    left_out: frozenset[str] = frozenset()
    flattens: bool = True
    fuses: bool = False
    unsigned_weights: bool = False
    exact_floats: bool = False
