"""Kinds of tokens: separators, class tokens, punctuation, words."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from octavo.graph import Encoder

KINDS = ("separator", "class", "punctuation", "word")
SEPARATOR, CLASS, PUNCTUATION, WORD = range(len(KINDS))
# How subword vocabularies mark the begin or the middle of a word: WordPiece, byte-level BPE, SentencePiece.
_MARKS = ("##", "Ġ", "▁", "Ċ")


class TokenKinds:
    """The kind of every token id: a table (vocabulary,) on the encoder's device."""

    def __init__(self, encoder: Encoder) -> None:
        tokenizer: Any = encoder.tokenizer
        self.tokenizer = tokenizer
        size = max(int(getattr(encoder.config, "vocab_size", 0)), len(tokenizer))
        self.table = torch.full((size,), WORD, dtype=torch.long)
        names = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
        for index, name in enumerate(names):
            if name is not None and is_punctuation(name):
                self.table[index] = PUNCTUATION
        for kind, attributes in ((CLASS, ("bos", "cls")), (SEPARATOR, ("eos", "sep"))):
            for attribute in attributes:
                special = getattr(self.tokenizer, f"{attribute}_token_id", None)
                if special is not None:
                    self.table[special] = kind
        self.table = self.table.to(encoder.device)

    def of(self, ids: Tensor) -> Tensor:
        """Return the kinds of token ids, of their shape."""
        return self.table[ids]

    def names(self, ids: Iterable[int]) -> list[str]:
        """Return the tokens of ids as the vocabulary writes them."""
        return [str(name) for name in self.tokenizer.convert_ids_to_tokens(list(ids))]


def is_punctuation(token: str) -> bool:
    """Whether a token of a vocabulary consists of punctuation and symbols only."""
    for mark in _MARKS:
        token = token.removeprefix(mark)
    return bool(token) and all(unicodedata.category(character)[0] in "PS" for character in token)
