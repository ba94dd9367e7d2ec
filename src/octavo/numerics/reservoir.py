"""An evenly spaced sample of a stream of rows in bounded memory."""

from __future__ import annotations

import torch
from torch import Tensor


class RowReservoir:
    """Keeps every 2^k-th row of a stream, k growing so that at most `capacity` elements are held.

    The choice is deterministic and does not depend on how the stream is cut. The first row is always kept.
    """

    def __init__(self, capacity: int) -> None:
        """Start empty with room for `capacity` elements."""
        self.capacity = capacity
        self.seen = 0
        self._stride = 1
        self._kept: list[Tensor] = []

    def add(self, rows: Tensor) -> None:
        """Take the next rows, (rows, classes), of the stream."""
        # The next row to keep is the next multiple of the stride.
        kept = rows[-self.seen % self._stride :: self._stride]
        self.seen += len(rows)
        if len(kept):
            self._kept.append(kept.detach().clone())
        while self._size() > max(self.capacity, rows.shape[1]):
            self._stride *= 2
            self._kept = [self.rows()[::2]]

    def rows(self) -> Tensor:
        """Return the rows kept, (rows, classes), in the order they came."""
        return torch.cat(self._kept)

    def _size(self) -> int:
        return sum(rows.numel() for rows in self._kept)


class RandomRows:
    """Keeps `capacity` rows of a stream, each with the same probability, whatever the stream's order.

    The choice depends on the seed and the number of rows that came before, not on how the stream is cut, and
    so is the same for all streams of one length.
    """

    def __init__(self, capacity: int, seed: int) -> None:
        self.capacity = capacity
        self._generator = torch.Generator().manual_seed(seed)
        self._keys = torch.empty(0, dtype=torch.float64)
        self._kept: Tensor | None = None

    def add(self, rows: Tensor) -> None:
        """Take the next rows, (rows, elements), of the stream."""
        keys = torch.rand(len(rows), generator=self._generator, dtype=torch.float64)
        if len(self._keys) == self.capacity:
            rises = keys > self._keys.min()
            keys, rows = keys[rises], rows[rises.to(rows.device)]
        joined = rows.detach().clone() if self._kept is None else torch.cat((self._kept, rows.detach()))
        keys = torch.cat((self._keys, keys))
        if len(keys) > self.capacity:
            best = keys.topk(self.capacity).indices.sort().values
            keys, joined = keys[best], joined[best.to(joined.device)]
        self._keys, self._kept = keys, joined

    def rows(self) -> Tensor | None:
        """Return the rows kept, in the order they came; None before the first."""
        return self._kept
