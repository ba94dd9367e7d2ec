"""Do texts keep their nearest neighbours? The overlap of two models' neighbour lists."""

from __future__ import annotations

import torch
from torch import Tensor

NEIGHBOURS = 10
NEIGHBOUR_TEXTS = 10_000
RANKED_TEXTS = 1000

_CHUNK = 512
_FEWEST = 3
# Duplicated texts tie; which of them comes first is noise, so neighbours within this cosine count as equal.
_TIE = 1e-6


class NeighbourOverlap:
    """Recall of the reference's nearest neighbours among the model's, over texts seen in batches.

    Keeps a uniform sample of at most `limit` texts (by default 10 000: about 60 MB for two models of
    width 768, up to four times that while sampling); similarities are computed 512 rows at a time.
    """

    def __init__(self, *, limit: int = NEIGHBOUR_TEXTS, seed: int = 0) -> None:
        self._limit = limit
        self._generator = torch.Generator().manual_seed(seed)
        self._chunks: list[tuple[Tensor, Tensor, Tensor]] = []
        self._held = 0

    def update(self, embeddings: Tensor, reference: Tensor) -> None:
        """Add the embeddings (B, d) of the model and of the reference for the same texts."""
        keys = torch.rand(len(embeddings), generator=self._generator)
        self._chunks.append((keys, _unit(embeddings), _unit(reference)))
        self._held += len(embeddings)
        if self._held >= 2 * self._limit:
            self._sample()

    def result(self) -> tuple[float | None, int, int]:
        """Return the overlap (None for fewer than two texts), k = min(10, n - 1) and n texts compared."""
        if not self._chunks:
            return None, 0, 0
        _, embeddings, reference = self._sample()
        texts = len(embeddings)
        k = min(NEIGHBOURS, texts - 1)
        return (_recall(embeddings, reference, k) if k > 0 else None), k, texts

    def rank_correlation(self) -> float | None:
        """Return the mean over texts of Spearman's correlation of their cosines with all others, by both.

        At most 1000 texts are asked; None for fewer than three, which have no order.
        """
        if not self._chunks:
            return None
        _, embeddings, reference = self._sample()
        texts = len(embeddings)
        if texts < _FEWEST:
            return None
        total = 0.0
        asked = min(texts, RANKED_TEXTS)
        for start in range(0, asked, _CHUNK):
            rows = torch.arange(start, min(start + _CHUNK, asked))
            mine, theirs = (_ranks(_similarities(each, rows)) for each in (embeddings, reference))
            total += float((mine * theirs).sum())
        return total / asked

    def _sample(self) -> tuple[Tensor, Tensor, Tensor]:
        # The texts with the smallest random keys are a uniform sample, however they arrived.
        keys, embeddings, reference = (torch.cat(parts) for parts in zip(*self._chunks, strict=True))
        if len(keys) > self._limit:
            kept = keys.topk(self._limit, largest=False).indices
            keys, embeddings, reference = keys[kept], embeddings[kept], reference[kept]
        self._chunks, self._held = [(keys, embeddings, reference)], len(keys)
        return keys, embeddings, reference


def _unit(embeddings: Tensor) -> Tensor:
    return torch.nn.functional.normalize(embeddings.detach().to("cpu", torch.float32), dim=-1)


def _recall(embeddings: Tensor, reference: Tensor, k: int) -> float:
    """Return the share of the model's k nearest neighbours (not itself) that the reference has too."""
    hits = 0
    for start in range(0, len(embeddings), _CHUNK):
        rows = torch.arange(start, min(start + _CHUNK, len(embeddings)))
        found = _similarities(embeddings, rows).topk(k).indices
        true = _similarities(reference, rows)
        threshold = true.topk(k).values[:, -1:] - _TIE
        hits += int((true.gather(1, found) >= threshold).sum())
    return hits / (k * len(embeddings))


def _ranks(similarities: Tensor) -> Tensor:
    """Return the ranks of each row with mean 0 and norm 1, without the text itself, at minus infinity."""
    ranks = similarities.argsort(dim=1, stable=True).argsort(dim=1).double()
    kept = ranks[ranks > 0].reshape(len(ranks), -1)
    return torch.nn.functional.normalize(kept - kept.mean(dim=1, keepdim=True), dim=1)


def _similarities(embeddings: Tensor, rows: Tensor) -> Tensor:
    similarities = embeddings[rows] @ embeddings.T
    similarities[torch.arange(len(rows)), rows] = -torch.inf
    return similarities
