from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import DataError
from octavo.fidelity import Reference
from octavo.graph import Encoder
from octavo.methods import load, quantize
from octavo.spec.presets import recipe
from octavo.tasks import compare

TEXTS = ["the dog barks, twice.", "a cat sleeps on the mat!", "rain again.", "who goes there?", "no."]
HEADS = [
    "BertModel",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
]


@pytest.fixture(scope="module")
def plain(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    return load(tiny_bert_folder())


def calls_of(monkeypatch: pytest.MonkeyPatch, encoder: Encoder) -> list[int]:
    """Count how often one encoder runs."""
    calls: list[int] = []
    run = Encoder.__call__

    def counting(self: Encoder, batch: Any) -> Any:
        if self is encoder:
            calls.append(1)
        return run(self, batch)

    monkeypatch.setattr(Encoder, "__call__", counting)
    return calls


def test_a_model_equals_itself(plain: Encoder) -> None:
    quality = Reference.of_texts(plain, TEXTS, batch_size=4).compare(plain).quality()
    assert quality.cosine is not None and quality.cosine.worst == pytest.approx(1)
    assert quality.sqnr == math.inf
    assert (quality.agreement, quality.score, quality.measure) == (None, None, "cosine")


@pytest.mark.parametrize("architecture", HEADS)
def test_evaluation_agrees(architecture: str, tiny_bert_folder: Callable[..., Path]) -> None:
    encoder = load(tiny_bert_folder(architecture, num_labels=2))
    model = quantize(encoder, recipe("w4a32"))
    fidelity = compare(model, encoder, TEXTS).fidelity
    assert Reference.of_texts(encoder, TEXTS).compare(model) == fidelity
    other_batches = Reference.of_texts(encoder, TEXTS, batch_size=2).compare(model)
    assert other_batches.cosine is not None and fidelity is not None and fidelity.cosine is not None
    assert other_batches.cosine.mean == pytest.approx(fidelity.cosine.mean, abs=1e-5)
    assert other_batches.agreement == pytest.approx(fidelity.agreement, abs=1e-6)


def test_a_single_logit_is_judged_by_its_sqnr(tiny_bert_folder: Callable[..., Path]) -> None:
    encoder = load(tiny_bert_folder("BertForSequenceClassification", num_labels=1))
    reference = Reference.of_texts(encoder, TEXTS, batch_size=4)
    quality = reference.compare(quantize(encoder, recipe("w4a32"))).quality()
    assert (quality.cosine, quality.agreement, quality.measure) == (None, None, "sqnr")
    assert quality.value == quality.sqnr < 60
    assert reference.compare(encoder).quality().value == 200  # a number, so that differences are numbers


def test_the_reference_runs_once_for_all_models(plain: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    models = [quantize(plain, recipe(name)) for name in ("w4a32", "w8a32")]
    reference = Reference.of_texts(plain, TEXTS, batch_size=2)
    calls = calls_of(monkeypatch, plain)
    results = [reference.compare(model) for model in models]
    assert len(calls) == 3
    assert results[0] != results[1]


def test_what_does_not_fit_is_computed_again(plain: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    model = quantize(plain, recipe("w4a32"))
    calls = calls_of(monkeypatch, plain)
    small = Reference(plain, plain.batches(TEXTS, 2), len(TEXTS), keep=5000)
    results = [small.compare(model) for _ in range(2)]
    assert results[0] == results[1]
    assert 3 < len(calls) <= 6


def test_progress_counts_texts(plain: Encoder) -> None:
    told: list[tuple[int, int]] = []
    reference = Reference.of_texts(plain, TEXTS, batch_size=2)
    reference.compare(plain, lambda done, total: told.append((done, total)))
    assert told == [(2, 5), (4, 5), (5, 5)]


def test_no_texts_are_refused(plain: Encoder) -> None:
    with pytest.raises(DataError, match="at least one text"):
        Reference(plain, [], 0)
