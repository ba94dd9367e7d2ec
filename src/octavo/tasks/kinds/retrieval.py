"""Retrieval: does an embedding model find the documents that answer a query?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from octavo.errors import DataError, SpecError, did_you_mean
from octavo.numerics.ranking_metrics import ndcg, recall, reciprocal_rank, top_overlap
from octavo.tasks.examples import Examples
from octavo.tasks.kinds.task import TRAIN, Running, Task, source_name
from octavo.tasks.kinds.vectors import INDEXES, Vectors, nearest_documents
from octavo.tasks.model import Model
from octavo.tasks.reading.beir import Collection, read_collection
from octavo.tasks.reading.rows import Source
from octavo.tasks.similarity import embed_texts
from octavo.tasks.texts import Text

if TYPE_CHECKING:
    from octavo.graph import Encoder
    from octavo.methods.training.examples import Examples as TrainingExamples

DEPTH = 100
"""Documents that are ranked for every query."""

Rankings = dict[str, list[list[str]]]
"""By how vectors are stored: the documents of every query, best first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Searches(Examples):
    """Queries with what is relevant to them, and the documents that are searched."""

    collection: Collection

    @property
    def read_texts(self) -> tuple[Text, ...]:
        """The queries, and the documents that are relevant to them."""
        return (*self.texts, *dict.fromkeys(document for _, document in self.matches()))

    def matches(self) -> list[tuple[str, str]]:
        """Return every query with each document that is relevant to it."""
        documents = self.collection.documents
        return [
            (text, documents[name])
            for text, relevant in zip(self.collection.queries.values(), self.labels, strict=True)
            for name in relevant
        ]


@dataclass(frozen=True, kw_only=True)
class Retrieval(Task, name="retrieval"):
    """Queries, documents and judgements: a folder in BEIR's layout, searched exactly by cosine.

    Training reads every query with each document that is relevant to it, and the other documents of a batch
    as wrong answers. Judgements of its own say which: `qrels/train.tsv`.

    Arguments:
        qrels: which judgements are scored: the name of a file in `qrels` without .tsv.
        train_qrels: which judgements are trained on.
        vectors: how vectors are stored: float, int8 (a range for each dimension, queries stay float), binary
            (signs of both). Metrics of all but the first carry the name: `int8/ndcg@10`.
        query_prefix, document_prefix: what the model wants before texts, such as `query: `.
    """

    heads: ClassVar[tuple[str, ...]] = ("encoder",)
    known_metrics: ClassVar[tuple[str, ...]] = ("ndcg@10", "recall@10", "recall@100", "mrr@10")

    qrels: str = "test"
    train_qrels: str = "train"
    vectors: tuple[str, ...] = ("float",)
    query_prefix: str = ""
    document_prefix: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        odd = next((name for name in self.vectors if name not in INDEXES), None)
        if odd is not None or not self.vectors:
            hint = did_you_mean(str(odd), INDEXES)
            raise SpecError(f"vectors are stored as {', '.join(INDEXES)}, not as {odd!r}{hint}")

    def _part(self, split: str) -> Searches:
        """Return what one folder has for a split: judgements tell the two apart, and nothing is held out."""
        return self._read(self.train, split)

    def _read(self, source: Source, split: str) -> Searches:
        judged = self.train_qrels if split == TRAIN else self.qrels
        if isinstance(source, Collection):
            collection = source
        elif isinstance(source, str | Path):
            collection = read_collection(source, judged)
        else:
            raise DataError(f"retrieval reads a folder in BEIR's layout, got a {type(source).__name__}")
        return Searches(
            task=self.title,
            split=judged,
            texts=tuple(collection.queries.values()),
            labels=tuple(collection.relevant.values()),
            full=len(collection.queries),
            source=source_name(source),
            collection=collection,
        )

    def output_labels(self, examples: Searches) -> tuple[str, ...]:
        """Return none: an embedding model has no head."""
        return ()

    def labelled(self, encoder: Encoder, examples: Searches, max_length: int) -> TrainingExamples:
        """Return every query with each document that is relevant to it."""
        from octavo.methods.training.pairs import tokenize_matches

        pairs = [
            (self.query_prefix + query, self.document_prefix + document)
            for query, document in examples.matches()
        ]
        return tokenize_matches(encoder, pairs, max_length)

    def predict(self, model: Model, examples: Searches, running: Running) -> Rankings:
        """Return the nearest documents of every query, for each way of storing vectors."""
        documents = examples.collection.documents
        texts = [self.document_prefix + text for text in documents.values()]
        queries = [f"{self.query_prefix}{text}" for text in examples.texts]
        embedded = _unit(
            embed_texts(
                model,
                [*texts, *queries],
                batch_size=running.batch_size,
                max_length=running.max_length,
                progress=running.progress,
            )
        )
        names = list(documents)
        rankings: Rankings = {}
        for kind in self.vectors:
            index = INDEXES[kind](embedded[: len(texts)])
            nearest = nearest_documents(embedded[len(texts) :], index, DEPTH)
            rankings[kind] = [[names[position] for position in row] for row in nearest]
        return rankings

    def measure(self, predicted: Rankings, examples: Searches) -> dict[str, float]:
        """Return the means over queries of nDCG, recall and reciprocal rank."""
        metrics: dict[str, float] = {}
        for number, (kind, ranked) in enumerate(predicted.items()):
            prefix = f"{kind}/" if number else ""
            pairs = list(zip(ranked, examples.labels, strict=True))
            values = {
                "ndcg@10": [ndcg(found, relevant, 10) for found, relevant in pairs],
                "recall@10": [recall(found, relevant, 10) for found, relevant in pairs],
                "recall@100": [recall(found, relevant, 100) for found, relevant in pairs],
                "mrr@10": [reciprocal_rank(found, relevant, 10) for found, relevant in pairs],
            }
            metrics |= {f"{prefix}{name}": 100 * float(np.mean(values[name])) for name in self.shown_metrics}
        return metrics

    def agreement(self, predicted: Rankings, reference: Rankings) -> dict[str, float]:
        """Return the overlap of the first ten documents with the reference's, by its first vectors."""
        theirs = next(iter(reference.values()))
        return {
            f"{kind}/top_ten" if number else "top_ten": 100
            * float(np.mean([top_overlap(*pair) for pair in zip(mine, theirs, strict=True)]))
            for number, (kind, mine) in enumerate(predicted.items())
        }


def _unit(vectors: Vectors) -> Vectors:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(norms == 0, 1, norms), dtype=np.float32)
