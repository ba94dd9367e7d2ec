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
