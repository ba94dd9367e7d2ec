"""Entities: the spans that a tagger's labels name, and the F1 of those of two taggers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Entity = tuple[int, int, str]
"""First word, the word after the last, and kind."""

PREFIXES = "BIESLU"
_ENDS, _STARTS = ("E", "S", "L", "U"), ("B", "S", "U")


def entities(tags: Sequence[str]) -> set[Entity]:
    """Return the entities of BIO, BIOES or BILOU tags, as CoNLL's own script reads them.

    An I- that follows nothing of its kind begins an entity. Tags without a prefix name no entity.

    >>> sorted(entities(["B-PER", "I-PER", "O", "I-LOC"]))
    [(0, 2, 'PER'), (3, 4, 'LOC')]
    """
    spans: set[Entity] = set()
    start, kind, before = 0, "", "O"
    for index, tag in enumerate([*tags, "O"]):
        prefix, own = split_tag(tag)
        if kind and (prefix in ("O", *_STARTS) or own != kind or before in _ENDS):
            spans.add((start, index, kind))
            kind = ""
        if prefix != "O" and not kind:
            start, kind = index, own
        before = prefix
    return spans


def split_tag(tag: str) -> tuple[str, str]:
    """Return prefix and kind of a tag: ("B", "PER") for B-PER, ("O", "") for what names no entity.

    >>> split_tag("B-PER"), split_tag("O"), split_tag("NOUN")
    (('B', 'PER'), ('O', ''), ('O', ''))
    """
    prefix, mark, kind = tag.partition("-")
    return (prefix, kind) if mark and prefix in tuple(PREFIXES) else ("O", "")


def names_entities(tags: Iterable[str]) -> bool:
    """Return whether some of the tags begin an entity, as B-PER does and NOUN does not."""
    return any(split_tag(tag)[0] != "O" for tag in tags)


class EntityTally:
    """Counts the entities of two taggers, sentence by sentence."""

    def __init__(self) -> None:
        self.shared = self.found = self.wanted = 0

    def add(self, tags: Sequence[str], reference: Sequence[str]) -> None:
        """Add the tags of one sentence by both."""
        mine, theirs = entities(tags), entities(reference)
        self.shared += len(mine & theirs)
        self.found += len(mine)
        self.wanted += len(theirs)

    @property
    def precision(self) -> float:
        """The share of the entities found that the reference has too; 0 without any."""
        return self.shared / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """The share of the reference's entities that were found; 0 without any."""
        return self.shared / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        """2 · shared / (found + wanted); 0 where nobody names an entity, as seqeval has it."""
        total = self.found + self.wanted
        return 2 * self.shared / total if total else 0.0
