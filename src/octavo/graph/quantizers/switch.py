"""Switching quantizers for a while: the one way to run a model with some of them off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from octavo.graph.quantizers.quantizer import Quantizer


@contextmanager
def switched_off(quantizers: Iterable[Quantizer]) -> Iterator[None]:
    """Let these quantizers pass every tensor, unobserved, inside the block; then each goes on as before."""
    with ExitStack() as stack:
        for quantizer in quantizers:
            stack.enter_context(quantizer.off())
        yield
