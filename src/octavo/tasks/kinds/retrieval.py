"""Retrieval: does an embedding model find the documents that answer a query?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from octavo.errors import DataError, SpecError, did_you_mean
from octavo.numerics.ranking_metrics import ndcg, recall, reciprocal_rank, top_overlap
from octavo.tasks.examples import Examples
from octavo.tasks.kinds.task import DEV, Running, Task, source_name
from octavo.tasks.kinds.vectors import INDEXES, Vectors, nearest_documents
from octavo.tasks.model import Model
from octavo.tasks.reading.beir import Collection, read_collection
from octavo.tasks.reading.rows import Source
from octavo.tasks.similarity import embed_texts

DEPTH = 100
"""Documents that are ranked for every query."""

Rankings = dict[str, list[list[str]]]
"""By how vectors are stored: the documents of every query, best first."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Searches(Examples):
    """Queries with what is relevant to them, and the documents that are searched."""

    collection: Collection


@dataclass(frozen=True, kw_only=True)
class Retrieval(Task, name="retrieval"):
    """Queries, documents and judgements: a folder in BEIR's layout, searched exactly by cosine.

    Arguments:
        qrels: which judgements: the name of a file in `qrels` without .tsv.
        vectors: how vectors are stored: float, int8 (a range for each dimension, queries stay float), binary
            (signs of both). Metrics of all but the first carry the name: `int8/ndcg@10`.
        query_prefix, document_prefix: what the model wants before texts, such as `query: `.
    """

    heads: ClassVar[tuple[str, ...]] = ("encoder",)
    known_metrics: ClassVar[tuple[str, ...]] = ("ndcg@10", "recall@10", "recall@100", "mrr@10")

    qrels: str = "test"
    vectors: tuple[str, ...] = ("float",)
    query_prefix: str = ""
    document_prefix: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        odd = next((name for name in self.vectors if name not in INDEXES), None)
        if odd is not None or not self.vectors:
            hint = did_you_mean(str(odd), INDEXES)
            raise SpecError(f"vectors are stored as {', '.join(INDEXES)}, not as {odd!r}{hint}")

    def read(self, split: str = DEV) -> Searches:
        """Return queries, documents and judgements."""
        if split != DEV:
            raise self._untrainable()
        if self.dev is None:
            raise DataError("retrieval has no data; give a folder in BEIR's layout (--data)")
        return self._read(self.dev, split)

    def _read(self, source: Source, split: str) -> Searches:
        if isinstance(source, Collection):
            collection = source
        elif isinstance(source, str | Path):
            collection = read_collection(source, self.qrels)
        else:
            raise DataError(f"retrieval reads a folder in BEIR's layout, got a {type(source).__name__}")
        return Searches(
            task=self.title,
            split=self.qrels,
            texts=tuple(collection.queries.values()),
            labels=tuple(collection.relevant.values()),
            full=len(collection.queries),
            source=source_name(source),
            collection=collection,
        )

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
