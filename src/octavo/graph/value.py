"""A value: one tensor of a captured graph that is worth a quantizer."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import fx


@dataclass(eq=False)
class Value:
    """One tensor that working operations read.

    `node` is where it stands, `source` the working operation it comes from (they differ for a function of one
    tensor), `kind` what that is: linear, matmul, norm, softmax, attention, embedding, sum, product, concat,
    function, other; `readers` are the working operations that read it, the graph's output among them;
    `weights` the parameters that make it.
    """

    node: fx.Node
    source: fx.Node
    kind: str
    nonlinear: bool = False
    readers: list[fx.Node] = field(default_factory=list)
    weights: list[fx.Node] = field(default_factory=list)
    ancestors: set[fx.Node] = field(default_factory=set, repr=False)
