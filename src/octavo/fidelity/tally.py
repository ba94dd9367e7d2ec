"""Adding up fidelity: the outputs of two models on the same texts, batch by batch, without labels."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.errors import ModelError, OctavoError
from octavo.fidelity.entities import EntityTally, names_entities
from octavo.fidelity.measures import EMBEDDING, Cosine, Fidelity, Neighbours
from octavo.fidelity.neighbours import NEIGHBOUR_TEXTS, NeighbourOverlap
from octavo.fidelity.spans import best_span, span_overlap
from octavo.numerics.metrics import pearson, spearman

Array = Tensor | NDArray[Any]

_TAGS, _SPANS = "token-classification", "question-answering"
HEADS = ("encoder", "sequence-classification", "token-classification", "question-answering", "masked-lm")

# Elements compared at a time in float64: the logits of a language model are far larger than its input.
_CHUNK = 2**21


class _OutputTally:
    """Running sums over the rows of one output."""

    def __init__(self) -> None:
        self.rows = 0
        self.signal = self.noise = 0.0
        self.cosine, self.worst = 0.0, math.inf
        self.agree, self.kl = 0, 0.0
        self.width = 0
        self.values: list[tuple[Tensor, Tensor]] = []

    def add(self, model: Tensor, reference: Tensor, valid: Tensor | None) -> None:
        """Add rows (n, width) in float64; entries that are not valid count nowhere."""
        x, y = _filled(model, valid, 0.0), _filled(reference, valid, 0.0)
        self.rows += len(x)
        self.width = max(self.width, x.shape[1])
        self.signal += float(y.square().sum())
        self.noise += float((x - y).square().sum())
        if len(x):
            each = cosines(x, y)
            self.cosine += float(each.sum())
            self.worst = min(self.worst, float(each.min()))

    def add_predictions(self, model: Tensor, reference: Tensor, valid: Tensor | None) -> None:
        """Add rows of logits (n, classes) in float64."""
        x, y = _filled(model, valid, -torch.inf), _filled(reference, valid, -torch.inf)
        self.agree += int((x.argmax(-1) == y.argmax(-1)).sum())
        p, q = y.log_softmax(-1), x.log_softmax(-1)
        divergence = p.exp() * (p - q)
        self.kl += float(_filled(divergence, valid, 0.0).sum())

    def sqnr(self) -> float:
        if self.noise == 0.0:
            return math.inf
        return 10 * math.log10(max(self.signal, 1e-300) / self.noise)

    def correlation(self) -> float:
        return pearson(*self._both())

    def rank_correlation(self) -> float:
        return spearman(*self._both())

    def _both(self) -> tuple[NDArray[Any], NDArray[Any]]:
        x, y = (torch.cat(parts).numpy() for parts in zip(*self.values, strict=True))
        return x, y


class FidelityTally:
    """Compares a model's outputs with a reference's, batch by batch, in memory that does not grow.

    For a bare encoder the outputs include the pooled embedding of each text, named `embedding`. Of those
    and of single logits values are kept: at most 10 000 embeddings, and 16 bytes a text for single logits.

    Arguments:
        labels: what the outputs of a tagger stand for, in their order, to compare the entities they name.
    """

    def __init__(
        self,
        head: str,
        *,
        labels: Sequence[str] = (),
        neighbour_limit: int = NEIGHBOUR_TEXTS,
        seed: int = 0,
    ) -> None:
        if head not in HEADS:
            raise ModelError(f"Fidelity of head {head!r} is not defined; known heads are {', '.join(HEADS)}.")
        self._head = head
        self._texts = 0
        self._tallies: dict[str, _OutputTally] = {}
        self._overlap = NeighbourOverlap(limit=neighbour_limit, seed=seed)
        self._labels = tuple(labels)
        self._entities = EntityTally() if head == _TAGS and names_entities(labels) else None
        self._spans: list[float] = []

    def update(
        self,
        outputs: Mapping[str, Array],
        reference: Mapping[str, Array],
        mask: Array | None = None,
        content: Array | None = None,
    ) -> None:
        """Add a batch.

        Arguments:
            outputs, reference: by name, (B, d), (B, T) or (B, T, d).
            mask: (B, T), 1 for tokens that count.
            content: (B, T), 1 for tokens of the text, which entities and answers are made of; the mask's if
                left out. Taggers are compared on these alone: nobody reads what they say of special tokens,
                whose logits can be so far off that they decide every sum.
        """
        if self._head == _TAGS and content is not None:
            mask = content
        for name, output in outputs.items():
            model, target = _same(name, output, reference)
            self._compare(name, model, target, None if mask is None else _tensor(mask) == 1)
        if EMBEDDING in outputs:
            self._overlap.update(_tensor(outputs[EMBEDDING]), _tensor(reference[EMBEDDING]))
        self._read(outputs, reference, mask if content is None else content)
        self._texts += len(next(iter(outputs.values())))

    def result(self) -> Fidelity:
        """Return the comparison over everything seen."""
        if self._texts == 0:
            raise OctavoError("Fidelity saw no outputs; give at least one text.")
        classified = {n: t for n, t in self._tallies.items() if t.rows and self._classifies(t.width)}
        single = {n: t for n, t in self._tallies.items() if t.values}
        return Fidelity(
            texts=self._texts,
            cosine=self._cosine(),
            sqnr={name: tally.sqnr() for name, tally in self._tallies.items()},
            agreement={name: tally.agree / tally.rows for name, tally in classified.items()},
            kl={name: tally.kl / tally.rows for name, tally in classified.items()},
            correlation={name: tally.correlation() for name, tally in single.items()},
            neighbours=self._neighbours(),
            rank_correlation=self._rank_correlation(single.values()),
            entities=None if self._entities is None or not self._entities.found else self._entities.f1,
            spans=sum(self._spans) / len(self._spans) if self._spans else None,
        )

    def _read(
        self, outputs: Mapping[str, Array], reference: Mapping[str, Array], content: Array | None
    ) -> None:
        """Add the entities of taggers and the spans of readers, text by text."""
        if self._entities is not None:
            _add_entities(self._entities, self._labels, outputs["logits"], reference["logits"], content)
        if self._head == _SPANS:
            self._spans += _overlaps(outputs, reference, content)

    def _rank_correlation(self, single: Collection[_OutputTally]) -> float | None:
        ranked = [tally.rank_correlation() for tally in single]
        return sum(ranked) / len(ranked) if ranked else self._overlap.rank_correlation()

    def _compare(self, name: str, model: Tensor, reference: Tensor, mask: Tensor | None) -> None:
        rows, target, valid = self._rows(model, reference, mask)
        tally = self._tallies.setdefault(name, _OutputTally())
        for part in _parts(rows):
            kept = None if valid is None else valid[part]
            x = _finite(name, rows[part].double(), kept, "model")
            y = _finite(name, target[part].double(), kept, "reference")
            tally.add(x, y, kept)
            if self._classifies(rows.shape[1]):
                tally.add_predictions(x, y, kept)
        if self._head == "sequence-classification" and rows.shape[1] == 1:
            tally.values.append((rows[:, 0].double().cpu(), target[:, 0].double().cpu()))

    def _classifies(self, width: int) -> bool:
        return self._head == "question-answering" or (self._head != "encoder" and width > 1)

    def _rows(
        self, model: Tensor, reference: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return both outputs as rows (n, width) that each hold one item, and which entries are valid."""
        if model.ndim == 2:
            spans = mask if self._head == "question-answering" else None
            return model, reference, None if spans is None else spans.to(model.device)
        chosen = torch.ones(model.shape[:2], dtype=torch.bool) if mask is None else mask
        chosen = chosen.to(model.device)
        return model[chosen], reference[chosen], None

    def _cosine(self) -> Cosine | None:
        names = [EMBEDDING] if EMBEDDING in self._tallies else list(self._tallies)
        tallies = [tally for tally in map(self._tallies.__getitem__, names) if tally.rows and tally.width > 1]
        if not tallies:
            return None
        total = sum(tally.rows for tally in tallies)
        mean = sum(tally.cosine for tally in tallies) / total
        return Cosine(mean=mean, worst=min(tally.worst for tally in tallies))

    def _neighbours(self) -> Neighbours | None:
        kept, of, texts = self._overlap.result()
        return Neighbours(kept=kept, of=of, texts=texts) if texts else None


def _add_entities(
    tally: EntityTally, labels: Sequence[str], model: Array, reference: Array, content: Array | None
) -> None:
    best = [_tensor(logits).argmax(-1).cpu() for logits in (model, reference)]
    kept = torch.ones_like(best[0], dtype=torch.bool) if content is None else _tensor(content).cpu() == 1
    for mine, theirs, tokens in zip(*best, kept, strict=True):
        named = [[labels[int(label)] for label in row[tokens]] for row in (mine, theirs)]
        tally.add(*named)


def _overlaps(
    outputs: Mapping[str, Array], reference: Mapping[str, Array], content: Array | None
) -> list[float]:
    """Return the overlap of both models' best spans of each text that has a token to answer with."""
    both = [
        [_tensor(given[f"{side}_logits"]).double().cpu().numpy() for side in ("start", "end")]
        for given in (outputs, reference)
    ]
    shape = both[0][0].shape
    kept = np.ones(shape, dtype=bool) if content is None else (_tensor(content).cpu() == 1).numpy()
    found = []
    for row, allowed in enumerate(kept):
        spans = [best_span(start[row], end[row], allowed) for start, end in both]
        if spans[0] is not None and spans[1] is not None:
            found.append(span_overlap(spans[0][1], spans[1][1]))
    return found


def _same(name: str, output: Array, reference: Mapping[str, Array]) -> tuple[Tensor, Tensor]:
    if name not in reference:
        raise ModelError(f"The reference has no output {name!r}; it has {', '.join(reference)}.")
    x, y = _tensor(output), _tensor(reference[name])
    if x.shape != y.shape:
        raise ModelError(
            f"Output {name!r} has shape {tuple(x.shape)}, the reference's {tuple(y.shape)}; "
            "compare models with the same head and width."
        )
    return x, y.to(x.device)


def _tensor(values: Array) -> Tensor:
    return torch.from_numpy(values.copy()) if isinstance(values, np.ndarray) else values.detach()


def _parts(rows: Tensor) -> Iterator[slice]:
    size = max(1, _CHUNK // max(1, rows.shape[1]))
    return (slice(start, start + size) for start in range(0, len(rows), size))


def _finite(name: str, rows: Tensor, valid: Tensor | None, owner: str) -> Tensor:
    if not torch.isfinite(_filled(rows, valid, 0.0)).all():
        raise ModelError(f"Output {name!r} of the {owner} holds NaN or infinity; it cannot be compared.")
    return rows


def _filled(values: Tensor, valid: Tensor | None, value: float) -> Tensor:
    return values if valid is None else values.masked_fill(~valid, value)


def cosines(x: Tensor, y: Tensor) -> Tensor:
    """Return the cosine of each row; two zero vectors count as equal, a zero and another as orthogonal."""
    a, b = x.norm(dim=-1), y.norm(dim=-1)
    cosines = (x * y).sum(-1) / (a * b).clamp_min(1e-300)
    return torch.where((a == 0) & (b == 0), torch.ones_like(a), cosines.clamp(-1.0, 1.0))
