"""The measures of fidelity: one vocabulary in Python, in JSON and in the rows of a comparison.

cosine.mean, cosine.worst   of the embedding or the logits of each text (for taggers, of its tokens)
sqnr                        signal to quantization noise ratio in dB, infinite for identical outputs
agreement                   share of equal predictions, 0 to 1
kl                          mean KL(reference || model) in nats
correlation                 Pearson's, for heads with a single logit
rank_correlation            Spearman's: of a single logit over texts, or of each text's cosines with others
neighbours                  share of each text's nearest neighbours that stay the same
entities                    F1 of the entities that two taggers name
spans                       overlap of the spans that two readers answer with, as the F1 of their tokens
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

EMBEDDING = "embedding"
"""The output that a bare encoder is compared by: the pooled embedding of each text."""

# Identical outputs have an infinite ratio; where models are ranked by it, differences must be numbers.
_MOST_DB = 200.0
# How results were written before all of Octavo had one vocabulary; files of that time are still read.
_FORMER = {
    "cosine.mean": "cosine_mean",
    "cosine.worst": "cosine_worst",
    "sqnr": "sqnr_db",
    "neighbours": "neighbour_overlap",
}


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """The cosine of outputs with those of the reference: the mean over texts (or tokens) and the smallest."""

    mean: float
    worst: float


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Share of nearest neighbours that stay the same, among `of` = min(10, n - 1) of n = `texts` texts."""

    kept: float | None
    of: int
    texts: int


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """A comparison of two models; dictionaries are by output name.

    cosine is of the pooled embedding for bare encoders, else of the logits; None for a single logit, which
    has no direction. neighbours is None for models with a head, rank_correlation for all but embeddings and
    single logits, entities for all but taggers whose labels name entities, spans for all but readers.
    """

    texts: int
    cosine: Cosine | None
    sqnr: dict[str, float]
    agreement: dict[str, float] = field(default_factory=dict)
    kl: dict[str, float] = field(default_factory=dict)
    correlation: dict[str, float] = field(default_factory=dict)
    neighbours: Neighbours | None = None
    rank_correlation: float | None = None
    entities: float | None = None
    spans: float | None = None

    def quality(self, score: float | None = None) -> Quality:
        """Return one number for each measure, and the score of a task where there is one."""
        return Quality(
            cosine=self.cosine,
            sqnr=_ratio(self.sqnr),
            agreement=_one(self.agreement),
            kl=_one(self.kl),
            correlation=_one(self.correlation),
            neighbours=None if self.neighbours is None else self.neighbours.kept,
            rank_correlation=self.rank_correlation,
            entities=self.entities,
            spans=self.spans,
            score=score,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; an infinite SQNR (identical outputs) becomes None."""
        return asdict(self) | {"sqnr": {name: _finite(ratio) for name, ratio in self.sqnr.items()}}


@dataclass(frozen=True, kw_only=True)
class Quality:
    """One number for each measure of fidelity, and the score of a task where there is one.

    A measure that a model has for several outputs is that of the embedding, or else the mean over outputs.
    Measures that are not defined for a model are None.
    """

    cosine: Cosine | None
    sqnr: float
    agreement: float | None = None
    kl: float | None = None
    correlation: float | None = None
    neighbours: float | None = None
    rank_correlation: float | None = None
    entities: float | None = None
    spans: float | None = None
    score: float | None = None

    @property
    def measure(self) -> str:
        """The name of what models are ranked by: the score, or else the cosine, or else the SQNR."""
        return "score" if self.score is not None else "cosine" if self.cosine is not None else "sqnr"

    @property
    def value(self) -> float:
        """What models are ranked by; higher is better. An SQNR counts up to 200 dB."""
        if self.score is not None:
            return self.score
        return self.cosine.mean if self.cosine is not None else min(self.sqnr, _MOST_DB)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; an infinite SQNR (identical outputs) becomes None."""
        return asdict(self) | {"sqnr": _finite(self.sqnr)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Quality:
        """Return what `to_dict` wrote."""
        cosine = None if plain["cosine"] is None else Cosine(**plain["cosine"])
        sqnr = math.inf if plain["sqnr"] is None else plain["sqnr"]
        return cls(**{**plain, "cosine": cosine, "sqnr": sqnr})


MEASURES = (
    "cosine.mean",
    "cosine.worst",
    "sqnr",
    "agreement",
    "kl",
    "correlation",
    "neighbours",
    "rank_correlation",
    "entities",
    "spans",
)


def read_measure(row: Mapping[str, Any], name: str) -> Any:
    """Return a measure of a row, such as `cosine.mean`, under its name now or its former one; None without.

    >>> [read_measure(row, "cosine.mean") for row in ({"cosine": {"mean": 0.9}}, {"cosine_mean": 0.9})]
    [0.9, 0.9]
    """
    value: Any = row
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return row.get(_FORMER[name]) if value is None and name in _FORMER else value


def is_measure(key: str) -> bool:
    """Whether a key of a row holds measures of fidelity, now or formerly."""
    return key in {name.split(".")[0] for name in MEASURES} or key in _FORMER.values()


def _one(by_output: Mapping[str, float]) -> float | None:
    if EMBEDDING in by_output:
        return by_output[EMBEDDING]
    return sum(by_output.values()) / len(by_output) if by_output else None


def _ratio(by_output: Mapping[str, float]) -> float:
    """The SQNR of the embedding, or else the mean over outputs, of those that are not identical."""
    if EMBEDDING in by_output:
        return by_output[EMBEDDING]
    mean = _one({name: ratio for name, ratio in by_output.items() if math.isfinite(ratio)})
    return math.inf if mean is None else mean


def _finite(ratio: float) -> float | None:
    return ratio if math.isfinite(ratio) else None
