"""Which tokens carry outliers, and how far they are separators, class tokens and punctuation."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from octavo.diagnosis.moments import Moments
from octavo.diagnosis.statistics import outliers
from octavo.diagnosis.watch import Batch, Places, is_by_token
from octavo.graph import Encoder, Site

KINDS = ("separator", "class", "punctuation", "word")
SEPARATOR, CLASS, PUNCTUATION, WORD = range(len(KINDS))
TRACKED_ROLES = ("ffn_input", "ffn_output", "ffn_residual")
_SHOWN_TOKENS = 8
# How subword vocabularies mark the begin or the middle of a word: WordPiece, byte-level BPE, SentencePiece.
_MARKS = ("##", "Ġ", "▁", "Ċ")


@dataclass(frozen=True, kw_only=True)
class Carrier:
    """A token of the vocabulary: in how many of its occurrences it carries an outlier."""

    token: str
    outliers: int
    occurrences: int


@dataclass(frozen=True, kw_only=True)
class Coincidence:
    """How far the tokens that carry outliers at some sites are separators, class tokens and punctuation.

    tokens and outliers count by kind (separator, class, punctuation, word); structural is the share of the
    outlier tokens that are one of the first three, expected their share among all tokens, lift the ratio.
    structural and lift are None where no token carries an outlier. carriers carry most of the outliers.
    """

    tokens: dict[str, int]
    outliers: dict[str, int]
    structural: float | None
    expected: float
    lift: float | None
    carriers: tuple[Carrier, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


class TokenKinds:
    """The kind of every token id: a table (vocabulary,) on the encoder's device."""

    def __init__(self, encoder: Encoder) -> None:
        tokenizer: Any = encoder.tokenizer
        self.tokenizer = tokenizer
        size = max(int(getattr(encoder.config, "vocab_size", 0)), len(tokenizer))
        self.table = torch.full((size,), WORD, dtype=torch.long)
        names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        for place, name in enumerate(names):
            if name is not None and is_punctuation(name):
                self.table[place] = PUNCTUATION
        for kind, attributes in ((CLASS, ("bos", "cls")), (SEPARATOR, ("eos", "sep"))):
            for attribute in attributes:
                special = getattr(self.tokenizer, f"{attribute}_token_id", None)
                if special is not None:
                    self.table[special] = kind
        self.table = self.table.to(encoder.device)

    def of(self, ids: Tensor) -> Tensor:
        """The kinds of token ids, of their shape."""
        return self.table[ids]

    def names(self, ids: Iterable[int]) -> list[str]:
        """The tokens of ids as the vocabulary writes them."""
        return [str(name) for name in self.tokenizer.convert_ids_to_tokens(list(ids))]


def is_punctuation(token: str) -> bool:
    """Whether a token of a vocabulary consists of punctuation and symbols only."""
    for mark in _MARKS:
        token = token.removeprefix(mark)
    return bool(token) and all(unicodedata.category(character)[0] in "PS" for character in token)


class TokenTally:
    """Counts tokens with and without outliers at FFN inputs, outputs and residual sums."""

    def __init__(self, kinds: TokenKinds, moments: Mapping[str, Moments]) -> None:
        self._kinds = kinds
        self._moments = moments
        self._sites: dict[str, Tensor] = {}  # site -> (kinds, 2): all tokens, tokens with an outlier
        self._vocabulary: dict[str, Tensor] = {}  # role -> (vocabulary, 2)

    def see(self, site: Site, x: Tensor, batch: Batch, places: Places) -> None:
        """Count the tokens of a tracked site; x is (batch, length, width)."""
        if site.role not in TRACKED_ROLES or not is_by_token(site, x, batch):
            return
        ids = batch["input_ids"].reshape(-1)
        hit = outliers(x, self._moments[site.name]).any(-1).reshape(-1).long()
        _count(self._sites, site.name, self._kinds.of(ids), hit, len(KINDS))
        _count(self._vocabulary, site.role, ids, hit, len(self._kinds.table))

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that were counted."""
        return tuple(self._sites)

    def site(self, name: str) -> Coincidence:
        """The coincidence at one site."""
        return _coincidence(self._sites[name], ())

    def role(self, role: str, names: Iterable[str]) -> Coincidence:
        """The coincidence at all sites of a role, with the tokens that carry most outliers."""
        counts = torch.stack([self._sites[name] for name in names]).sum(0)
        return _coincidence(counts, self._carriers(role))

    def _carriers(self, role: str) -> tuple[Carrier, ...]:
        counts = self._vocabulary[role]
        most = counts[:, 1].topk(min(_SHOWN_TOKENS, len(counts))).indices
        rows = [(place, *counts[place].tolist()) for place in most.tolist()]
        names = self._kinds.names(place for place, *_ in rows)
        return tuple(
            Carrier(token=name, outliers=hit, occurrences=seen)
            for name, (_, seen, hit) in zip(names, rows, strict=True)
            if hit
        )


def _count(counts: dict[str, Tensor], key: str, index: Tensor, hit: Tensor, size: int) -> None:
    if key not in counts:
        counts[key] = torch.zeros(size, 2, dtype=torch.long, device=index.device)
    counts[key].index_add_(0, index, torch.stack((torch.ones_like(hit), hit), dim=1))


def _coincidence(counts: Tensor, carriers: tuple[Carrier, ...]) -> Coincidence:
    tokens, hits = counts[:, 0].tolist(), counts[:, 1].tolist()
    expected = 1 - tokens[WORD] / sum(tokens)
    structural = 1 - hits[WORD] / sum(hits) if sum(hits) else None
    return Coincidence(
        tokens=dict(zip(KINDS, tokens, strict=True)),
        outliers=dict(zip(KINDS, hits, strict=True)),
        structural=structural,
        expected=expected,
        lift=structural / expected if structural is not None and expected else None,
        carriers=carriers,
    )
