"""Attention heads: what they look at, which do nothing, and which dimensions make them (appendix A)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.diagnosis.pull import PullTally, Share
from octavo.diagnosis.tokens import CLASS, KINDS, SEPARATOR, TokenKinds
from octavo.diagnosis.watch import Batch, Places, layer_of, sites_with_role
from octavo.errors import ModelError
from octavo.graph import Encoder, Site

# More than half of the attention on separator and class tokens: the head found nothing to do (appendix A).
NO_OP = 0.5
# In a text of four tokens half of them are special: attention must also exceed what their number explains.
NO_OP_LIFT = 1.5


@dataclass(frozen=True, kw_only=True)
class Head:
    """One attention head over all texts.

    shares: mean attention on separator, class, punctuation and word tokens; they add up to 1.
    no_op: more than half of it lies on separator and class tokens, and more than their number explains.
    key_dimensions: dimensions of the query-key product that pull it to those tokens, with their shares.
    input_dimensions: dimensions of the layer's input that make the keys do so; outlier says that the same
        dimension was found to be an outlier in the layer before. Both are empty where nothing pulls.
    """

    layer: int
    head: int
    shares: dict[str, float]
    no_op: bool
    key_dimensions: tuple[Share, ...] = ()
    input_dimensions: tuple[Share, ...] = ()

    @property
    def special(self) -> float:
        """The share on separator and class tokens."""
        return self.shares[KINDS[SEPARATOR]] + self.shares[KINDS[CLASS]]

    @property
    def name(self) -> str:
        """`layer.head`, as on the command line."""
        return f"{self.layer}.{self.head}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "special": self.special}


def check_attention(encoder: Encoder) -> None:
    """Refuse a graph in which the attention probabilities are not to be seen."""
    if not any(
        layer_of(site.name) is not None
        for site in sites_with_role(encoder.activation_sites, "attention_probs")
    ):
        raise ModelError(
            f"{encoder.name} has no attention probabilities in its graph (its attention is one fused "
            "operation, or it has none); "
            "leave the attention out with --no-attention (attention=False in Python)"
        )


class AttentionTally:
    """Adds up, text by text, where every head looks and what pulls it there."""

    def __init__(self, encoder: Encoder, kinds: TokenKinds) -> None:
        self._kinds = kinds
        self._shares: dict[int, Tensor] = {}  # layer -> (heads, kinds)
        self._present = torch.zeros(len(KINDS), dtype=torch.float64, device=encoder.device)
        self._texts = 0
        self._first: str | None = None
        self._heads = _head_counts(encoder)
        self._pull = PullTally(encoder, kinds, self._heads)

    def see(self, site: Site, x: Tensor, batch: Batch, places: Places) -> None:
        """Take attention probabilities (batch, heads, queries, keys) into the sums."""
        self._pull.see(site, x, batch, places)
        layer = layer_of(site.name)
        if site.role != "attention_probs" or layer not in self._heads:
            return
        marks = torch.nn.functional.one_hot(self._kinds.of(batch["input_ids"]), len(KINDS)).to(x.dtype)
        received = x.mean(2) @ marks  # (batch, heads, kinds)
        total = received.sum(0, dtype=torch.float64)
        self._shares[layer] = self._shares.get(layer, torch.zeros_like(total)) + total
        self._first = self._first or site.name
        if site.name == self._first:
            self._present += marks.mean(1).sum(0, dtype=torch.float64)
            self._texts += len(x)

    def heads(self, outliers: Mapping[int, Collection[int]]) -> list[Head]:
        """All heads; `outliers` are the outlier dimensions that enter each layer."""
        usual = float(self._present[[SEPARATOR, CLASS]].sum()) / self._texts
        found = []
        for layer, total in sorted(self._shares.items()):
            for head, row in enumerate((total / self._texts).tolist()):
                special = row[SEPARATOR] + row[CLASS]
                keys, inputs = self._pull.shares(layer, head, outliers.get(layer, ()))
                found.append(
                    Head(
                        layer=layer,
                        head=head,
                        shares=dict(zip(KINDS, row, strict=True)),
                        no_op=special > NO_OP and special > NO_OP_LIFT * usual,
                        key_dimensions=keys,
                        input_dimensions=inputs,
                    )
                )
        return found


def _head_counts(encoder: Encoder) -> dict[int, int]:
    counts = {}
    for site in sites_with_role(encoder.activation_sites, "attention_probs"):
        layer = layer_of(site.name)
        if layer is not None and len(site.shape) == 4 and isinstance(site.shape[1], int):
            counts[layer] = site.shape[1]
    return counts
