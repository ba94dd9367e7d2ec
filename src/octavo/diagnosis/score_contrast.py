"""Score contrast: why a head attends to special tokens, by dimension of its keys and of the layer's input.

For queries q_i and keys k_j of a head, the mean score on special keys S exceeds that on the others O by

    contrast = mean_i q_i · (mean_{j in S} k_j - mean_{j in O} k_j)  =  sum_c  q[c] (k_S[c] - k_O[c]),

a sum over the head's dimensions c. Keys are linear in the layer's input x, k = W x + b, so the same number is

    contrast = sum_m (W^T q)[m] (x_S[m] - x_O[m]),

a sum over the input's dimensions m, where an outlier dimension shows what it is for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.diagnosis.token_kinds import CLASS, SEPARATOR, TokenKinds
from octavo.diagnosis.watch import Batch, Shown
from octavo.graph import Encoder
from octavo.graph.sites.flow import Flow

_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Share:
    """A dimension and its share of a head's score contrast; all dimensions add up to 1."""

    dimension: int
    share: float
    outlier: bool = False


class ScoreContrast:
    """Adds up the contrast of every head by dimension, over texts that have special and other tokens."""

    def __init__(self, encoder: Encoder, kinds: TokenKinds, heads: Mapping[int, int]) -> None:
        self._kinds = kinds
        self._heads = heads
        self._weights = _key_weights(encoder, heads)
        self._inputs = {name for name, _ in self._weights.values()}
        # for the batch that runs now: input site -> (batch, width) of x_S - x_O
        self._seen: dict[str, Tensor] = {}
        self._queries: dict[int, Tensor] = {}  # layer -> (batch, heads, width of a head)
        self._by_key: dict[int, Tensor] = {}  # layer -> (heads, width of a head)
        self._by_input: dict[int, Tensor] = {}  # layer -> (heads, width)

    def see(self, shown: Shown) -> None:
        """Take layer inputs, queries and keys; queries are computed before keys."""
        site, x, batch = shown.site, shown.x, shown.batch
        if site.name in self._inputs and shown.is_by_token:
            self._seen[site.name] = self._contrast(x.unsqueeze(1), batch).squeeze(1)
        if site.layer is None or site.role not in ("query", "key"):
            return
        split = by_head(x, self._heads.get(site.layer, 0), batch["input_ids"].shape[-1])
        if split is None:
            return
        if site.role == "query":
            self._queries[site.layer] = split.mean(2)
        elif site.layer in self._queries:
            self._add(site.layer, self._queries.pop(site.layer), self._contrast(split, batch))

    def _add(self, layer: int, query: Tensor, key: Tensor) -> None:
        if query.shape != key.shape:
            return
        _accumulate(self._by_key, layer, (query * key).sum(0, dtype=torch.float64))
        name, weight = self._weights.get(layer, ("", None))
        if weight is not None and name in self._seen:
            felt = torch.einsum("bhc,hcm->bhm", query, weight.view(query.shape[1], query.shape[2], -1))
            _accumulate(
                self._by_input, layer, (felt * self._seen[name].unsqueeze(1)).sum(0, dtype=torch.float64)
            )

    def _contrast(self, x: Tensor, batch: Batch) -> Tensor:
        """Return means of x (batch, heads, length, width) over special tokens less those over others."""
        kinds = self._kinds.of(batch["input_ids"])
        special = ((kinds == SEPARATOR) | (kinds == CLASS)).to(x.dtype)[:, None, :, None]
        counts = special.sum(2), (1 - special).sum(2)
        both = ((counts[0] > 0) & (counts[1] > 0)).to(x.dtype)
        inside = (x * special).sum(2) / counts[0].clamp(min=1)
        outside = (x * (1 - special)).sum(2) / counts[1].clamp(min=1)
        return (inside - outside) * both

    def shares(
        self, layer: int, head: int, outliers: Collection[int]
    ) -> tuple[tuple[Share, ...], tuple[Share, ...]]:
        """Return the largest shares of a head's contrast by key dimension and by input dimension."""
        by_key, by_input = self._by_key.get(layer), self._by_input.get(layer)
        return (
            () if by_key is None else _largest(by_key[head], ()),
            () if by_input is None else _largest(by_input[head], outliers),
        )


def by_head(x: Tensor, heads: int, length: int) -> Tensor | None:
    """Return queries or keys, (batch, length, width) or split, as (batch, heads, length, width of a head)."""
    if x.dim() == 4 and x.shape[1] == heads and x.shape[2] == length:
        return x
    if x.dim() == 3 and x.shape[1] == length and heads and x.shape[-1] % heads == 0:
        return x.reshape(len(x), length, heads, -1).transpose(1, 2)
    return None


def _accumulate(sums: dict[int, Tensor], layer: int, value: Tensor) -> None:
    sums[layer] = sums[layer] + value if layer in sums else value


def _largest(contrast: Tensor, outliers: Collection[int]) -> tuple[Share, ...]:
    total = float(contrast.sum())
    if total <= 0:  # the head avoids special tokens
        return ()
    best = contrast.topk(min(_SHOWN, len(contrast)))
    return tuple(
        Share(dimension=index, share=value / total, outlier=index in outliers)
        for value, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    )


def _key_weights(encoder: Encoder, heads: Mapping[int, int]) -> dict[int, tuple[str, Tensor]]:
    """Return by layer the site that its key projection reads, and the weight (width, input width) of that.

    Layers whose keys are not one plain linear layer of a site (fused or rotated projections) are left out.
    """
    flow = Flow(encoder.graph)
    names = {site.targets[0]: site.name for site in encoder.activation_sites}
    weights = {}
    for site in encoder.activation_sites:
        if site.role != "key" or site.layer is None or site.layer not in heads:
            continue
        value = next(v for node, v in flow.values.items() if node.name == site.targets[0])
        reads = flow.read_by.get(value.source, [])
        plain = (
            value.node is value.source
            and value.kind == "linear"
            and len(reads) == 1
            and len(value.weights) == 1
        )
        if plain and reads[0].node.name in names:
            weight = flow.tensor(value.weights[0]).detach()
            if weight.dim() == 2 and weight.shape[0] == site.width:
                weights[site.layer] = (names[reads[0].node.name], weight)
    return weights
