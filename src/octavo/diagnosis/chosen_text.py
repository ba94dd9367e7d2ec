"""The chosen text: the one that the report shows token by token."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from octavo.diagnosis.token_kinds import KINDS, TokenKinds
from octavo.diagnosis.watch import Batch
from octavo.errors import DataError
from octavo.graph import Encoder, Text
from octavo.graph.batches import tokenize

TOKEN_ROLES = ("ffn_input", "ffn_output")
"""The tensors that are shown by token and dimension."""
FEWEST_TOKENS = 4
_PREFERRED_TOKENS = 8
_MOST_TOKENS = 64
# FFN values, queries and keys of every token take 2 bytes each; this keeps twelve layers below 5 MB.
_MOST_BYTES = 2_600_000


@dataclass(frozen=True, kw_only=True, eq=False)
class ChosenText:
    """A text by its index, its tokens with their kinds, its batch, and whether it was cut for the report."""

    index: int
    tokens: list[str]
    kinds: list[str]
    batch: Batch
    cut: bool


def choose_text(
    encoder: Encoder, texts: Sequence[Text], kinds: TokenKinds, number: int | None = None
) -> ChosenText:
    """Choose text `number`, counted from 1, or else the first that is long enough for token figures."""
    index, count = _choose(encoder, texts, number)
    limit = min(token_limit(encoder), encoder.max_length)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the figures show the first tokens only is said in the report
        _, batch = next(iter(encoder.batches([texts[index]], 1, limit)))
    ids = batch["input_ids"][0]
    return ChosenText(
        index=index,
        tokens=kinds.names(ids.tolist()),
        kinds=[KINDS[kind] for kind in kinds.of(ids.to(encoder.device)).tolist()],
        batch=batch,
        cut=count > limit,
    )


def token_limit(encoder: Encoder) -> int:
    """Return how many tokens of a text the report can show without growing too large."""
    shown = (*TOKEN_ROLES, "query", "key")
    shapes = [site.shape for site in encoder.activation_sites if site.role in shown]
    widths = [math.prod(size for size in shape if isinstance(size, int)) for shape in shapes]
    affordable = _MOST_BYTES // max(1, 2 * sum(widths))
    return max(_PREFERRED_TOKENS, min(_MOST_TOKENS, affordable))


def _choose(encoder: Encoder, texts: Sequence[Text], number: int | None) -> tuple[int, int]:
    """Return the index of a text and its number of tokens."""
    if number is not None and not 1 <= number <= len(texts):
        raise DataError(
            f"text {number} was chosen for the token figures; there are {len(texts)}, count from 1"
        )
    assert encoder.tokenizer is not None  # `diagnose` checks it
    candidates = range(len(texts)) if number is None else [number - 1]
    longest, count = candidates[0], 0
    for index in candidates:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tokens = len(tokenize(encoder.tokenizer, [texts[index]], encoder.max_length)[0]["input_ids"])
        if tokens > count:
            longest, count = index, tokens
        if count >= _PREFERRED_TOKENS:
            break
    if count < FEWEST_TOKENS:
        what = f"text {number} has" if number is not None else "the longest text has"
        raise DataError(
            f"{what} {count} tokens with its special tokens, too few for token figures; "
            f"give a text of at least {FEWEST_TOKENS} tokens"
        )
    return longest, count
