from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from octavo.errors import DataError
from octavo.graph import Encoder
from octavo.methods import load
from octavo.methods.training.pairs import TEMPERATURE, tokenize_matches
from octavo.sentence import SentenceModules

PAIRS = [("who", "a man"), ("what", "a dog"), ("who", "a cat"), ("where", "a dog")]


@pytest.fixture(scope="module")
def embedder(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    encoder = load(str(tiny_bert_folder(initializer_range=0.2)))
    encoder.sentence = SentenceModules(embeds=True)
    return encoder


def test_a_query_is_asked_for_its_document_among_those_that_are_no_answer(embedder: Encoder) -> None:
    data = tokenize_matches(embedder, PAIRS)
    rows = torch.arange(4)
    inputs, targets = data.batch(rows, 16)
    with torch.no_grad():
        loss = data.loss(embedder.graph(*inputs), inputs, targets)
    texts = [text for side in zip(*PAIRS, strict=True) for text in side]
    vectors = functional.normalize(
        torch.cat([embedder.embed(b, embedder(b)) for _, b in embedder.batches(texts, 1, order=range(8))]),
        dim=-1,
    )
    cosines = vectors[:4] @ vectors[4:].T
    # the third document answers the first query too, and the second and last are one document
    wrong = {0: (1, 3), 1: (0, 2), 2: (1, 3), 3: (0, 2)}
    expected = []
    for row, others in wrong.items():
        scores = torch.stack([cosines[row, column] for column in (row, *others)]) / TEMPERATURE
        expected.append(scores.logsumexp(0) - scores[0])
    assert float(loss) == pytest.approx(float(torch.stack(expected).mean()), rel=1e-3)


def test_nothing_to_learn_from_is_an_error(embedder: Encoder) -> None:
    with pytest.raises(DataError, match="no query with a relevant document was given"):
        tokenize_matches(embedder, [])
