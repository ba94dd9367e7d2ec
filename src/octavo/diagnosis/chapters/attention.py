"""Chapter: attention. What heads look at, which do nothing, and which dimensions make them (appendix A)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.diagnosis.chapter import WIDTH, Chapter, Finding, Observers
from octavo.diagnosis.chapters.dimensions import Dimensions
from octavo.diagnosis.markup import asset, packed_bytes, packed_halves, section
from octavo.diagnosis.score_contrast import ScoreContrast, Share, by_head
from octavo.diagnosis.token_kinds import CLASS, KINDS, SEPARATOR, WORD, TokenKinds
from octavo.diagnosis.watch import Shown
from octavo.diagnosis.wording import NONE, percent
from octavo.drawing import Drawing
from octavo.errors import ModelError
from octavo.graph import Encoder
from octavo.progress import Progress

# More than half of the attention on separator and class tokens: the head found nothing to do (appendix A).
NO_OP = 0.5
# In a text of four tokens half of them are special: attention must also exceed what their number explains.
NO_OP_LIFT = 1.5
_ENTERING_ROLES = ("ffn_output", "ffn_residual", "layer_output", "embedding_norm", "embedding_sum")


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
        """Return plain data for JSON."""
        return {**asdict(self), "special": self.special}


@dataclass(frozen=True, kw_only=True, eq=False)
class Attention:
    """All heads, and the chosen text inside them, by layer.

    patterns: (heads, tokens, tokens); queries, keys: (heads, tokens, width of a head).
    """

    heads: tuple[Head, ...]
    patterns: dict[int, Tensor]
    queries: dict[int, Tensor]
    keys: dict[int, Tensor]


def check_attention(encoder: Encoder) -> None:
    """Refuse a graph in which the attention probabilities are not to be seen."""
    if not any(s.role == "attention_probs" and s.layer is not None for s in encoder.activation_sites):
        raise ModelError(
            f"{encoder.name} has no attention probabilities in its graph (its attention is one fused "
            "operation, or it has none); "
            "leave the attention out with --no-attention (attention=False in Python)"
        )


# -- watch ---------------------------------------------------------------------------------------------------


class AttentionTally:
    """Adds up, text by text, where every head looks and what pulls it there."""

    def __init__(self, encoder: Encoder, kinds: TokenKinds) -> None:
        self._kinds = kinds
        self._shares: dict[int, Tensor] = {}  # layer -> (heads, kinds)
        self._present = torch.zeros(len(KINDS), dtype=torch.float64, device=encoder.device)
        self._texts = 0
        self._first: str | None = None
        self._heads = _head_counts(encoder)
        self.contrast = ScoreContrast(encoder, kinds, self._heads)

    def see(self, shown: Shown) -> None:
        """Take attention probabilities (batch, heads, queries, keys) into the sums."""
        self.contrast.see(shown)
        site, x = shown.site, shown.x
        if site.role != "attention_probs" or site.layer not in self._heads:
            return
        marks = torch.nn.functional.one_hot(self._kinds.of(shown.batch["input_ids"]), len(KINDS)).to(x.dtype)
        received = x.mean(2) @ marks  # (batch, heads, kinds)
        total = received.sum(0, dtype=torch.float64)
        self._shares[site.layer] = self._shares.get(site.layer, torch.zeros_like(total)) + total
        self._first = self._first or site.name
        if site.name == self._first:
            self._present += marks.mean(1).sum(0, dtype=torch.float64)
            self._texts += len(x)

    def heads(self, outliers: Mapping[int, Collection[int]]) -> list[Head]:
        """Return all heads; `outliers` are the outlier dimensions that enter each layer."""
        usual = float(self._present[[SEPARATOR, CLASS]].sum()) / self._texts
        heads = []
        for layer, total in sorted(self._shares.items()):
            for head, row in enumerate((total / self._texts).tolist()):
                special = row[SEPARATOR] + row[CLASS]
                keys, inputs = self.contrast.shares(layer, head, outliers.get(layer, ()))
                heads.append(
                    Head(
                        layer=layer,
                        head=head,
                        shares=dict(zip(KINDS, row, strict=True)),
                        no_op=special > NO_OP and special > NO_OP_LIFT * usual,
                        key_dimensions=keys,
                        input_dimensions=inputs,
                    )
                )
        return heads


def _head_counts(encoder: Encoder) -> dict[int, int]:
    counts = {}
    for site in encoder.activation_sites:
        split = site.role == "attention_probs" and len(site.shape) == 4
        if split and site.layer is not None and isinstance(site.shape[1], int):
            counts[site.layer] = site.shape[1]
    return counts


class PatternKeeper:
    """Keeps attention patterns, queries and keys of the chosen text, by layer."""

    def __init__(self) -> None:
        self.patterns: dict[int, Tensor] = {}
        self.queries: dict[int, Tensor] = {}
        self.keys: dict[int, Tensor] = {}

    def see(self, shown: Shown) -> None:
        """Keep a copy of what the figures show; a batch of one."""
        layer, role = shown.site.layer, shown.site.role
        if layer is None:
            return
        if role == "attention_probs" and shown.x.dim() == 4:
            self.patterns[layer] = shown.x[0].cpu().clone()
            self._split(layer)
        elif role in ("query", "key"):
            kept = self.queries if role == "query" else self.keys
            kept[layer] = shown.x.cpu().clone()

    def _split(self, layer: int) -> None:
        heads, length = self.patterns[layer].shape[:2]
        for kept in (self.queries, self.keys):
            split = by_head(kept[layer], heads, length) if layer in kept else None
            if split is None:
                kept.pop(layer, None)
            else:
                kept[layer] = split[0].contiguous()


# -- draw ----------------------------------------------------------------------------------------------------


def draw_heads(heads: Sequence[Head]) -> Drawing:
    """Draw layer by head: the darker, the more attention on separator and class tokens; no-ops are ringed."""
    layers, count = 1 + max(h.layer for h in heads), 1 + max(h.head for h in heads)
    cell = min(34.0, (WIDTH - 70) / count)
    drawing = Drawing(70 + cell * count, 34 + cell * layers, "Attention on separator and class tokens")
    for head in range(count):
        drawing.text(66 + cell * (head + 0.5), 14, str(head), "small", "middle")
    for layer in range(layers):
        drawing.text(58, 22 + cell * (layer + 0.5) + 4, f"layer {layer}", "small", "end")
    for h in heads:
        x, y, size = 66 + cell * h.head, 22 + cell * h.layer, cell - 2
        drawing.rect(x, y, size, size, "field")
        tip = f"head {h.name}: {100 * h.special:.0f} %"
        drawing.rect(x, y, size, size, "hot", tip, opacity=h.special)
        if h.no_op:
            drawing.rect(x + 1, y + 1, size - 2, size - 2, "ring")
    return drawing


class AttentionChapter(Chapter[Attention]):
    """Attention heads, and the chosen text inside them."""

    name, title, record = "attention", "Attention", Attention

    def key(self) -> str | None:
        """Keep results by the text that is shown; without attention there is nothing to keep."""
        return f"attention/text-{self.study.chosen.index + 1}" if self.study.attention else None

    def observers(self) -> Observers:
        """Watch where heads look in the second pass, and the chosen text."""
        if not self.study.attention:
            return Observers()
        self._tally = AttentionTally(self.study.encoder, self.study.kinds)
        self._keeper = PatternKeeper()
        return Observers(second=self._tally.see, chosen=self._keeper.see)

    def conclude(self, progress: Progress) -> Attention:
        """Describe every head."""
        if not self.study.attention:
            return Attention(heads=(), patterns={}, queries={}, keys={})
        kept = self._keeper
        heads = tuple(self._tally.heads(self._entering()))
        return Attention(heads=heads, patterns=kept.patterns, queries=kept.queries, keys=kept.keys)

    def _entering(self) -> dict[int, set[int]]:
        """Return the outlier dimensions that enter each layer: of the layer before, or of the embeddings."""
        dimensions: Dimensions = self.study.results["dimensions"]
        entering: dict[int, set[int]] = {}
        for outlier in dimensions.outliers:
            if outlier.role in _ENTERING_ROLES:
                layer = self.study.layers[outlier.site]
                entering.setdefault(0 if layer is None else layer + 1, set()).add(outlier.dimension)
        return entering

    # -- say -------------------------------------------------------------------------------------------------

    def findings(self) -> list[Finding]:
        """Count the heads that do nothing, and name the outlier dimension behind them."""
        idle = [head for head in self.result.heads if head.no_op]
        if not idle:
            return []
        kind = max(KINDS[:WORD], key=lambda k: sum(head.shares[k] for head in idle))
        driven: dict[int, list[float]] = {}
        for head in idle:
            for share in head.input_dimensions[:1]:
                if share.outlier:
                    driven.setdefault(share.dimension, []).append(share.share)
        strongest = max(idle, key=lambda head: head.special)
        text = (
            f"They put more than half of their attention on separator and class tokens, mostly {kind} "
            f"tokens: such heads do nothing for that text. The strongest is {strongest.name} (layer.head) "
            f"with {percent(strongest.special)}."
        )
        if driven:
            dimension, shares = max(driven.items(), key=lambda item: len(item[1]))
            middle = sorted(shares)[len(shares) // 2]
            text += (
                f" In {len(shares)} of them the outlier dimension {dimension} is the largest part of what "
                f"pulls the keys there (median {percent(middle)} of the pull): the outliers steer "
                "these heads to doing nothing."
            )
        title = f"{len(idle)} of {len(self.result.heads)} attention heads are no-ops"
        return [Finding(level="note", title=title, text=text)]

    def to_dict(self) -> dict[str, Any]:
        """Return `heads`."""
        return {"heads": [head.to_dict() for head in self.result.heads]}

    # -- draw ------------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, Drawing]:
        """Draw the heads."""
        return {"heads": draw_heads(self.result.heads)} if self.result.heads else {}

    def tile(self) -> tuple[str, str]:
        """Return the number of heads that do nothing."""
        idle, all_heads = sum(head.no_op for head in self.result.heads), len(self.result.heads)
        return "attention heads that are no-ops", f"{idle} / {all_heads}" if all_heads else NONE

    def section(self, figures: Mapping[str, Drawing]) -> str:
        """Show what the page's script draws from the data."""
        if not self.result.heads:
            return ""
        lead = "What heads look at, and which dimensions make them look there."
        return section("attention", "Attention", lead, asset("attention.html"))

    def data(self) -> dict[str, Any]:
        """Return the heads, and the chosen text's patterns, queries and keys."""
        return {"attention": attention_data(self.result)}


def attention_data(attention: Attention) -> dict[str, Any]:
    """Return what the interactive figures of the chapter show."""
    layers = []
    for layer, pattern in sorted(attention.patterns.items()):
        entry: dict[str, Any] = {"layer": layer, "heads": len(pattern), "pattern": packed_bytes(pattern)}
        queries, keys = attention.queries.get(layer), attention.keys.get(layer)
        if queries is not None and keys is not None and queries.shape == keys.shape:
            entry["width"] = queries.shape[-1]
            entry |= {"queries": packed_halves(queries), "keys": packed_halves(keys)}
        layers.append(entry)
    described = {
        head.name: {
            "shares": head.shares,
            "special": head.special,
            "noop": head.no_op,
            "keys": [[share.dimension, share.share] for share in head.key_dimensions],
            "inputs": [[share.dimension, share.share, share.outlier] for share in head.input_dimensions],
        }
        for head in attention.heads
    }
    return {"layers": layers if attention.heads else [], "heads": described}
