from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.diagnosis.quality import Quality, Reference
from octavo.graph import Encoder
from octavo.methods import load, quantize
from octavo.spec.presets import recipe
from octavo.tasks import compare


def reference(encoder: Encoder, texts: list[str]) -> Reference:
    return Reference(encoder, texts, batch_size=4, max_length=None, score=None)


def test_a_model_equals_itself(plain: Encoder, texts: list[str]) -> None:
    quality = reference(plain, texts).measure(plain)
    assert quality.cosine == pytest.approx(1)
    assert quality.sqnr_db == 200
    assert (quality.agreement, quality.score, quality.measure) == (None, None, "cosine")


@pytest.mark.parametrize(
    "architecture",
    ["BertModel", "BertForSequenceClassification", "BertForTokenClassification", "BertForQuestionAnswering"],
)
def test_evaluation_agrees(
    architecture: str, tiny_bert_folder: Callable[..., Path], texts: list[str]
) -> None:
    encoder = load(tiny_bert_folder(architecture, num_labels=2))
    model = quantize(encoder, recipe("w4a32"))
    quality = reference(encoder, texts).measure(model)
    fidelity = compare(model, encoder, texts).fidelity
    assert fidelity is not None
    assert quality.cosine == pytest.approx(fidelity.cosine_mean, abs=1e-5)
    if quality.agreement is not None:
        mean = sum(fidelity.agreement.values()) / len(fidelity.agreement)
        assert quality.agreement == pytest.approx(mean, abs=1e-6)


def test_a_single_logit_is_judged_by_its_sqnr(
    tiny_bert_folder: Callable[..., Path], texts: list[str]
) -> None:
    encoder = load(tiny_bert_folder("BertForSequenceClassification", num_labels=1))
    quality = reference(encoder, texts).measure(quantize(encoder, recipe("w4a32")))
    assert (quality.cosine, quality.agreement, quality.measure) == (None, None, "sqnr_db")
    assert quality.value == quality.sqnr_db < 60


def test_a_score_counts_most(plain: Encoder, texts: list[str]) -> None:
    quality = Reference(plain, texts, batch_size=4, max_length=None, score=lambda model: 71.5).measure(plain)
    assert (quality.measure, quality.value) == ("score", 71.5)
    assert Quality(**quality.to_dict()) == quality
