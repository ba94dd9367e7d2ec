"""Reranking: does a cross-encoder put the passages that answer a query first?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from octavo.errors import DataError, ModelError, SpecError
from octavo.numerics.metrics import spearman
from octavo.numerics.ranking_metrics import ndcg, reciprocal_rank, top_overlap
from octavo.tasks.examples import Examples
from octavo.tasks.kinds.labelling import class_loss, set_loss, with_loss
from octavo.tasks.kinds.task import Running, chosen_metrics, source_name
from octavo.tasks.kinds.texts_and_labels import LabelledTexts, logits_of, number
from octavo.tasks.model import Model
from octavo.tasks.reading.rows import Row, Source, columns_of, read_rows
from octavo.tasks.similarity import pair_cosines

if TYPE_CHECKING:
    from octavo.graph import Encoder
    from octavo.methods.training.examples import Examples as TrainingExamples

POSITIVE, NEGATIVE = "positive", "negative"


@dataclass(frozen=True, kw_only=True, eq=False)
class Candidates(Examples):
    """Pairs of a query and a passage; labels are how relevant the passage is, (n,), 0 for not at all."""

    @property
    def together(self) -> tuple[object, ...]:
        """The passages of one query stay together."""
        return tuple(pair[0] for pair in self.texts)


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Pairs of a query and a passage, and their scores (n,)."""

    pairs: tuple[tuple[str, str], ...]
    scores: NDArray[np.float64]

    def rankings(self) -> Iterator[tuple[list[int], list[int]]]:
        """Yield, for every query, its pairs as they stand and as the scores order them, best first.

        Files list relevant passages first, and a model in 8 bits has equal scores: their order is that of the
        passages' digests, which know nothing of relevance.
        """
        groups: dict[str, list[int]] = {}
        for index, (query, _) in enumerate(self.pairs):
            groups.setdefault(query, []).append(index)
        for members in groups.values():
            yield members, sorted(members, key=self._place)

    def _place(self, index: int) -> tuple[float, bytes]:
        passage = self.pairs[index][1]
        return -float(self.scores[index]), hashlib.sha256(passage.encode()).digest()


@dataclass(frozen=True, kw_only=True)
class Reranking(LabelledTexts, name="reranking"):
    """Queries with candidate passages, for cross-encoders; embedding models rank them by cosine.

    Rows hold a query, a passage and its relevance (0 for none), or a query with lists of positive and
    negative passages. A query without a relevant passage counts nowhere.

    Arguments:
        text: the columns of query and passage.
        label: the column of relevance.
    """

    heads: ClassVar[tuple[str, ...]] = ("sequence-classification", "encoder")
    known_metrics: ClassVar[tuple[str, ...]] = ("mrr@10", "ndcg@10")

    text: str | tuple[str, ...] = ("query", "passage")
    label: str | tuple[str, ...] = "relevance"

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.text_columns) != 2:
            raise SpecError(
                f"reranking reads two columns, query and passage, not {self.text_columns[0]!r} alone"
            )

    def check_model(self, model: Model) -> None:
        """Refuse a classifier of more than two classes, which no passage is ranked by."""
        super().check_model(model)
        outputs = getattr(model.config, "num_labels", 1)
        if model.head != "encoder" and outputs > 2:
            raise ModelError(
                f"{self.title} needs a head with 1 output, or 2 of which the second says relevant; "
                f"{model.name} has {outputs}"
            )

    def _read(self, source: Source, split: str) -> Candidates:
        rows = read_rows(source)
        listed = POSITIVE in columns_of(rows) and self.text_columns[1] not in columns_of(rows)
        read = self._lists if listed else self._pair
        pairs = [pair for row in rows for pair in read(row)]
        if not any(relevance > 0 for *_, relevance, _ in pairs):
            raise DataError(f"{source_name(source)} holds no relevant passage; mark some with 1")
        return Candidates(
            task=self.title,
            split=split,
            texts=tuple((query, passage) for query, passage, *_ in pairs),
            labels=np.asarray([relevance for *_, relevance, _ in pairs]),
            full=len(pairs),
            source=source_name(source),
            where=tuple(where for *_, where in pairs),
        )

    def _pair(self, row: Row) -> Iterator[tuple[str, str, int, str]]:
        query, passage = self.text_columns
        relevance = number(row, self.label_columns[0])
        if relevance < 0 or not relevance.is_integer():
            raise DataError(f"{row.where}: relevance {relevance:g} is no whole number from 0 on")
        yield row.text(query), row.text(passage), int(relevance), row.where

    def _lists(self, row: Row) -> Iterator[tuple[str, str, int, str]]:
        query = row.text(self.text_columns[0])
        for column, relevance in ((POSITIVE, 1), (NEGATIVE, 0)):
            passages: Any = row[column]
            # a frame that was read from Parquet holds arrays
            if isinstance(passages, str) or not isinstance(passages, Sequence | np.ndarray):
                raise DataError(f"{row.where}: column {column!r} holds no list of passages")
            for passage in passages:
                if not isinstance(passage, str) or not passage.strip():
                    raise DataError(
                        f"{row.where}: a passage in column {column!r} is {passage!r}; "
                        "write its text, or drop it"
                    )
                yield query, passage.strip(), relevance, row.where

    def predict(self, model: Model, examples: Candidates, running: Running) -> Ranked:
        """Return a score for every pair: the logit, the second less the first of two, or the cosine."""
        pairs = tuple((text[0], text[1]) for text in examples.texts)
        if model.head == "encoder":
            scores = pair_cosines(
                model,
                examples.texts,
                batch_size=running.batch_size,
                max_length=running.max_length,
                progress=running.progress,
            )
            return Ranked(pairs=pairs, scores=scores)
        logits = logits_of(model, examples, running)
        return Ranked(pairs=pairs, scores=logits[:, -1] - (logits[:, 0] if logits.shape[1] > 1 else 0))

    def measure(self, predicted: Ranked, examples: Candidates) -> dict[str, float]:
        """Return the means over queries of reciprocal rank and nDCG."""
        firsts, gains = [], []
        for members, ranked in predicted.rankings():
            relevant = {str(index): int(examples.labels[index]) for index in members}
            if any(relevant.values()):
                names = list(map(str, ranked))
                firsts.append(reciprocal_rank(names, relevant))
                gains.append(ndcg(names, relevant))
        return chosen_metrics(self, {"mrr@10": float(np.mean(firsts)), "ndcg@10": float(np.mean(gains))})

    def agreement(self, predicted: Ranked, reference: Ranked) -> dict[str, float]:
        """Return, over queries, the rank correlation of the passages and the overlap of the first ten."""
        correlations, overlaps = [], []
        for (members, mine), (_, theirs) in zip(predicted.rankings(), reference.rankings(), strict=True):
            overlaps.append(top_overlap(list(map(str, mine)), list(map(str, theirs))))
            if len(members) > 1:
                correlations.append(spearman(predicted.scores[members], reference.scores[members]))
        found = {"top_ten": 100 * float(np.mean(overlaps))}
        return {"rank_correlation": 100 * float(np.mean(correlations)), **found} if correlations else found

    def output_labels(self, examples: Candidates) -> tuple[str, ...]:
        """Return no names: the one output is a score."""
        return ()

    def labelled(self, encoder: Encoder, examples: Candidates, max_length: int) -> TrainingExamples:
        """Return pairs and whether each passage is relevant, (n,); for an embedding model those that are."""
        from octavo.methods.training.labelled import tokenize_labelled
        from octavo.methods.training.pairs import tokenize_matches

        relevant = examples.labels > 0
        if encoder.head == "encoder":
            chosen = [pair for pair, yes in zip(examples.texts, relevant, strict=True) if yes]
            return tokenize_matches(encoder, [(pair[0], pair[1]) for pair in chosen], max_length)
        one = getattr(encoder.config, "num_labels", 1) == 1
        labels = relevant.astype(np.float32) if one else relevant.astype(np.int64)
        data = tokenize_labelled(encoder, examples.texts, labels, max_length)
        return with_loss(data, set_loss if one else class_loss)
