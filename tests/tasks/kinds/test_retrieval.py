from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from octavo.errors import DataError, ModelError
from octavo.tasks import Retrieval, evaluate
from octavo.tasks.kinds.vectors import INDEXES, binary_index, int8_index, nearest_documents
from octavo.tasks.reading.beir import Collection
from tests.tasks.fake import FakeEncoder, Text
from tests.tasks.reading.test_beir import write

VECTORS = {"Rome a city": [1.0, 0.1], "a river": [0.1, 1.0], "town": [0.9, 0.2], "water": [1.0, 0.5]}


def embedding(text: Text) -> dict[str, list[list[float]]]:
    return {"last_hidden_state": [VECTORS[str(text)]]}


def test_documents_are_ranked_by_cosine(tmp_path: Path) -> None:
    result = evaluate(FakeEncoder(embedding), task=Retrieval(dev=write(tmp_path)))
    assert result.examples == 2 and result.split == "test"
    # "town" finds its document first, "water" second
    assert result.metrics["mrr@10"] == pytest.approx(75.0)
    assert result.metrics["ndcg@10"] == pytest.approx(100 * (1 + 1 / np.log2(3)) / 2)
    assert result.metrics["recall@10"] == 100.0


def test_vectors_in_8_bits_and_as_signs_are_judged_beside(tmp_path: Path) -> None:
    fake = FakeEncoder(embedding)
    task = Retrieval(dev=write(tmp_path), vectors=("float", "int8", "binary"), metrics=("ndcg@10",))
    result = evaluate(fake, task=task, against=fake)
    assert list(result.metrics) == ["ndcg@10", "int8/ndcg@10", "binary/ndcg@10"]
    assert result.agreement == {"top_ten": 100.0, "int8/top_ten": 100.0, "binary/top_ten": 100.0}


def test_prefixes_stand_before_texts() -> None:
    collection = Collection(documents={"d": "text"}, queries={"q": "ask"}, relevant={"q": {"d": 1}})
    fake = FakeEncoder(lambda text: {"last_hidden_state": [[1.0, 2.0]]})
    evaluate(fake, task=Retrieval(dev=collection, query_prefix="query: ", document_prefix="passage: "))
    assert fake.texts == ["passage: text", "query: ask"]


def test_a_model_without_embeddings_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"retrieval needs no head \(an embedding model\)"):
        evaluate(FakeEncoder(embedding, head="sequence-classification"), task=Retrieval(dev=write(tmp_path)))


def test_training_has_judgements_of_its_own(tmp_path: Path) -> None:
    folder = write(tmp_path)
    with pytest.raises(DataError, match=r"qrels.train\.tsv does not exist; there are test"):
        Retrieval(train=folder).read("train")
    (folder / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq3\td1\t1\nq3\td2\t1\n")
    task = Retrieval(train=folder)
    train, dev = task.read("train"), task.read("dev")
    assert (train.split, dev.split, dev.texts) == ("train", "test", ("town", "water"))
    assert train.matches() == [("other", "Rome a city"), ("other", "a river")]
    assert train.read_texts == ("other", "Rome a city", "a river")


def unit(rows: int, width: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(rows, width)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_the_int8_index_is_that_of_documents_rounded_to_255_steps() -> None:
    documents, queries = unit(50, 16, 0), unit(5, 16, 1)
    low, high = documents.min(axis=0), documents.max(axis=0)
    rounded = low + np.round((documents - low) / ((high - low) / 255)) * ((high - low) / 255)
    assert int8_index(documents)(queries) == pytest.approx(queries @ rounded.T, abs=1e-5)


def test_the_binary_index_counts_equal_signs() -> None:
    documents, queries = unit(50, 16, 0), unit(5, 16, 1)
    equal = ((queries[:, None] > 0) == (documents[None] > 0)).mean(axis=2)
    assert binary_index(documents)(queries) == pytest.approx(equal)


@pytest.mark.parametrize("kind", INDEXES)
def test_the_nearest_documents_are_those_of_the_largest_similarity(kind: str) -> None:
    documents, queries = unit(40, 8, 0), unit(7, 8, 1)
    similarities = INDEXES[kind](documents)
    found = nearest_documents(queries, similarities, 5)
    scores = similarities(queries)
    assert found.shape == (7, 5)
    assert np.take_along_axis(scores, found, 1) == pytest.approx(-np.sort(-scores, axis=1)[:, :5])
