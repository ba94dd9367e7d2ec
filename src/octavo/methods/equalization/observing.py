"""What equalization knows of activations: the ranges of channels and a sample of tokens, in two halves.

Texts are dealt to the halves in turns. A choice made with the ranges of one half is judged by the tokens of
the other: 64 texts do not show every dimension's range, and factors that fit them too closely clip the next
text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from octavo.errors import CalibrationError
from octavo.graph import QuantizedEncoder, Quantizer
from octavo.graph.batches import of_equal_length
from octavo.graph.quantizers.switch import switched_off
from octavo.graph.quantizers.watch import watched
from octavo.methods.context import Batches
from octavo.numerics.min_max import NotFiniteError
from octavo.numerics.reservoir import RandomRows

HALVES = (0, 1)


class Observed:
    """What passed one site.

    Attributes:
        low, high: (2, elements) the range of every element of a token, in either half of the texts.
    """

    def __init__(self, tokens: int, seed: int) -> None:
        self.low: Tensor | None = None
        self.high: Tensor | None = None
        self._samples = [RandomRows(max(1, tokens // 2), seed) for _ in HALVES]

    def add(self, halves: Iterable[Tensor]) -> None:
        """Take the tokens of either half, (tokens, elements) each."""
        for half, rows in enumerate(halves):
            if not len(rows):
                continue
            if self.low is None or self.high is None:
                self.low = torch.full((2, rows.shape[1]), torch.inf)
                self.high = -self.low
            self.low[half] = torch.minimum(self.low[half], rows.amin(0).cpu())
            self.high[half] = torch.maximum(self.high[half], rows.amax(0).cpu())
            self._samples[half].add(rows.cpu())

    def extremes(self, half: int | None = None) -> tuple[Tensor, Tensor]:
        """The range of every element, (elements,) each, in one half or in both."""
        assert self.low is not None and self.high is not None
        if half is None or not bool(torch.isfinite(self.low[half]).all()):
            return self.low.amin(0), self.high.amax(0)
        return self.low[half], self.high[half]

    def sample(self, half: int) -> Tensor:
        """Tokens of one half, (tokens, elements); of the other where there is a single text."""
        rows = self._samples[half].rows()
        rows = self._samples[1 - half].rows() if rows is None else rows
        assert rows is not None
        return rows


def observe(
    model: QuantizedEncoder, sites: Mapping[str, int], batches: Batches, tokens: int, seed: int
) -> dict[str, Observed]:
    """Run the float model on all batches and return what passed these sites; padding never counts.

    Arguments:
        sites: how many elements a token has at each.
        tokens: how many are kept of each site, from both halves together.
    """
    seen = {name: Observed(tokens, seed) for name in sites}
    quantizers = {name: model.quantizers[name] for name in sites}
    texts = 0

    def see(quantizer: Quantizer, x: Tensor) -> None:
        if not bool(torch.isfinite(x).all()):
            raise NotFiniteError.at(quantizer.site.name)
        name = quantizer.site.name
        seen[name].add(_halves(quantizer.site.shape, sites[name], x.detach(), texts))

    with watched(quantizers, see), switched_off(model.quantizers.values()):
        for batch in of_equal_length(batches):
            model(batch)
            texts += len(batch["input_ids"])
    for name, observed in seen.items():
        if observed.low is None:
            raise CalibrationError(f"{name} saw no data; give at least one calibration text")
    return seen


def _halves(shape: Sequence[int | str], elements: int, x: Tensor, texts: int) -> list[Tensor]:
    """Return the tokens of even and of odd texts, (tokens, elements) each; `texts` came before these."""
    varying = [axis for axis, size in enumerate(shape) if isinstance(size, str)]
    moved = x.movedim(varying, list(range(len(varying))))  # heads and their dimensions last
    if not shape or shape[0] != "batch":  # the same for every text
        return [moved.reshape(-1, elements)] * len(HALVES)
    return [moved[(half + texts) % 2 :: 2].reshape(-1, elements) for half in HALVES]
