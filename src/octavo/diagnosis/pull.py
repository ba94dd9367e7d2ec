"""What pulls a head to the special tokens: the query-key product by dimension, traced to the layer's input.

For queries q_i and keys k_j of a head, the mean score on special keys S exceeds that on the others O by

    pull = mean_i q_i · (mean_{j in S} k_j - mean_{j in O} k_j)  =  sum_c  q[c] (k_S[c] - k_O[c]),

a sum over the head's dimensions c. Keys are linear in the layer's input x, k = W x + b, so the same number is

    pull = sum_m (W^T q)[m] (x_S[m] - x_O[m]),

a sum over the input's dimensions m, where an outlier dimension shows what it is for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.diagnosis.tokens import CLASS, SEPARATOR, TokenKinds
from octavo.diagnosis.watch import Batch, Places, is_by_token, layer_of
from octavo.graph import Encoder, Site
from octavo.graph.sites.flow import Flow

_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Share:
    """A dimension and its share of a head's pull to the special tokens; all dimensions add up to 1."""

    dimension: int
    share: float
    outlier: bool = False


class PullTally:
    """Adds up the pull of every head by dimension, over texts that have special and other tokens."""

    def __init__(self, encoder: Encoder, kinds: TokenKinds, heads: Mapping[int, int]) -> None:
        self._kinds = kinds
        self._heads = heads
        self._weights = _key_weights(encoder, heads)
        self._inputs = {name for name, _ in self._weights.values()}
        self._seen: dict[
            str, Tensor
        ] = {}  # input site -> (batch, width) of x_S - x_O, for the batch that runs now
        self._queries: dict[int, Tensor] = {}  # layer -> (batch, heads, width of a head)
        self._by_key: dict[int, Tensor] = {}  # layer -> (heads, width of a head)
        self._by_input: dict[int, Tensor] = {}  # layer -> (heads, width)

    def see(self, site: Site, x: Tensor, batch: Batch, places: Places) -> None:
        """Take layer inputs, queries and keys; queries are computed before keys."""
        if site.name in self._inputs and is_by_token(site, x, batch):
            self._seen[site.name] = self._contrast(x.unsqueeze(1), batch).squeeze(1)
        layer = layer_of(site.name)
        if layer is None or site.role not in ("query", "key"):
            return
        split = by_head(x, self._heads.get(layer, 0), batch["input_ids"].shape[-1])
        if split is None:
            return
        if site.role == "query":
            self._queries[layer] = split.mean(2)
        elif layer in self._queries:
            self._add(layer, self._queries.pop(layer), self._contrast(split, batch))

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
        """Mean of x (batch, heads, length, width) over special tokens less that of others; 0 without both."""
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
        """The largest shares of a head's pull by key dimension and by input dimension."""
        by_key, by_input = self._by_key.get(layer), self._by_input.get(layer)
        return (
            () if by_key is None else _largest(by_key[head], ()),
            () if by_input is None else _largest(by_input[head], outliers),
        )


def by_head(x: Tensor, heads: int, length: int) -> Tensor | None:
    """Queries or keys as (batch, heads, length, width of a head), from that or (batch, length, width)."""
    if x.dim() == 4 and x.shape[1] == heads and x.shape[2] == length:
        return x
    if x.dim() == 3 and x.shape[1] == length and heads and x.shape[-1] % heads == 0:
        return x.reshape(len(x), length, heads, -1).transpose(1, 2)
    return None


def _accumulate(sums: dict[int, Tensor], layer: int, value: Tensor) -> None:
    sums[layer] = sums[layer] + value if layer in sums else value


def _largest(pull: Tensor, outliers: Collection[int]) -> tuple[Share, ...]:
    total = float(pull.sum())
    if total <= 0:  # the head is pushed away from special tokens
        return ()
    best = pull.topk(min(_SHOWN, len(pull)))
    return tuple(
        Share(dimension=place, share=value / total, outlier=place in outliers)
        for value, place in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    )


def _key_weights(encoder: Encoder, heads: Mapping[int, int]) -> dict[int, tuple[str, Tensor]]:
    """Per layer the site that its key projection reads and the projection's weight (width, input width).

    Layers whose keys are not one plain linear layer of a site (fused or rotated projections) are left out.
    """
    flow = Flow(encoder.graph)
    names = {site.targets[0]: site.name for site in encoder.activation_sites}
    found = {}
    for site in encoder.activation_sites:
        layer = layer_of(site.name)
        if site.role != "key" or layer is None or layer not in heads:
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
                found[layer] = (names[reads[0].node.name], weight)
    return found
