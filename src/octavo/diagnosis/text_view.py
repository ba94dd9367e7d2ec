"""One chosen text in detail: values by token and dimension, attention patterns, queries and keys."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from octavo.diagnosis.pull import by_head
from octavo.diagnosis.tokens import KINDS, TokenKinds
from octavo.diagnosis.watch import Batch, Places, Watcher, is_by_token, layer_of
from octavo.errors import DataError
from octavo.graph import Encoder, Site, Text
from octavo.graph.batches import tokenize

TOKEN_ROLES = ("ffn_input", "ffn_output")
FEWEST_TOKENS = 4
_PREFERRED_TOKENS = 8
_MOST_TOKENS = 64
# FFN values, queries and keys of every token take 2 bytes each; this keeps twelve layers below 5 MB.
_MOST_BYTES = 2_600_000


@dataclass(eq=False, kw_only=True)
class TextView:
    """What a chosen text looks like inside the model.

    values: site -> (tokens, width); patterns: layer -> (heads, tokens, tokens);
    queries, keys: layer -> (heads, tokens, width of a head).
    """

    place: int
    tokens: list[str]
    kinds: list[str]
    cut: bool
    values: dict[str, Tensor] = field(default_factory=dict)
    patterns: dict[int, Tensor] = field(default_factory=dict)
    queries: dict[int, Tensor] = field(default_factory=dict)
    keys: dict[int, Tensor] = field(default_factory=dict)

    def see(self, site: Site, x: Tensor, batch: Batch, places: Places) -> None:
        """Keep a copy of what the figures show; x has a batch of one."""
        layer = layer_of(site.name)
        if site.role in TOKEN_ROLES and is_by_token(site, x, batch):
            self.values[site.name] = x[0].cpu().clone()
        elif layer is not None and site.role == "attention_probs" and x.dim() == 4:
            self.patterns[layer] = x[0].cpu().clone()
            self._split(layer)
        elif layer is not None and site.role in ("query", "key"):
            held = self.queries if site.role == "query" else self.keys
            held[layer] = x.cpu().clone()

    def _split(self, layer: int) -> None:
        heads, length = self.patterns[layer].shape[:2]
        for held in (self.queries, self.keys):
            split = by_head(held[layer], heads, length) if layer in held else None
            if split is None:
                held.pop(layer, None)
            else:
                held[layer] = split[0].contiguous()


def look_at(encoder: Encoder, texts: Sequence[Text], kinds: TokenKinds, chosen: int | None) -> TextView:
    """Run one text, number `chosen` from 1, or else the first that is long enough for token figures."""
    place, count = _choose(encoder, texts, chosen)
    limit = min(_limit(encoder), encoder.max_length)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the figures show the first tokens only is said in the report
        _, batch = next(iter(encoder.batches([texts[place]], 1, limit)))
    ids = batch["input_ids"][0]
    sequence = TextView(
        place=place,
        tokens=kinds.names(ids.tolist()),
        kinds=[KINDS[kind] for kind in kinds.of(ids.to(encoder.device)).tolist()],
        cut=count > limit,
    )
    Watcher(encoder).show(batch, [place], [sequence])
    return sequence


def _choose(encoder: Encoder, texts: Sequence[Text], chosen: int | None) -> tuple[int, int]:
    """The place of a text and its number of tokens."""
    if chosen is not None and not 1 <= chosen <= len(texts):
        raise DataError(
            f"text {chosen} was chosen for the token figures; there are {len(texts)}, count from 1"
        )
    assert encoder.tokenizer is not None  # batches were made from texts before
    candidates = range(len(texts)) if chosen is None else [chosen - 1]
    longest, count = candidates[0], 0
    for place in candidates:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tokens = len(tokenize(encoder.tokenizer, [texts[place]], encoder.max_length)[0]["input_ids"])
        if tokens > count:
            longest, count = place, tokens
        if count >= _PREFERRED_TOKENS:
            break
    if count < FEWEST_TOKENS:
        what = f"text {chosen} has" if chosen is not None else "the longest text has"
        raise DataError(
            f"{what} {count} tokens with its special tokens, too few for token figures; "
            f"give a text of at least {FEWEST_TOKENS} tokens"
        )
    return longest, count


def _limit(encoder: Encoder) -> int:
    shown = (*TOKEN_ROLES, "query", "key")
    sizes = [
        [size for size in s.shape if isinstance(size, int)]
        for s in encoder.activation_sites
        if s.role in shown
    ]
    widths = [math.prod(size) for size in sizes]
    affordable = _MOST_BYTES // max(1, 2 * sum(widths))
    return max(_PREFERRED_TOKENS, min(_MOST_TOKENS, affordable))


def ranges(values: Tensor) -> tuple[list[float], list[float]]:
    """Smallest and largest value of every token of (tokens, width): the paper's figure 2a."""
    return torch.amin(values, 1).tolist(), torch.amax(values, 1).tolist()
