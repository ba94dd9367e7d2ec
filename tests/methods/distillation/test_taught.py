from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from octavo.graph.taps import tapped
from octavo.methods import load
from octavo.methods.distillation.objective import Objective
from octavo.methods.distillation.settings import Distillation
from octavo.methods.distillation.taught import Taught, texts_to_learn
from tests.methods.distillation.test_distilling import sentences

TEXTS = sentences(21)


def taught(folder: Path, inside: str = "") -> Taught:
    encoder = load(str(folder))
    sites = [site for site in encoder.activation_sites if site.role == inside]
    inputs, lengths = texts_to_learn(encoder, TEXTS, 32)
    objective = Objective(encoder, Distillation(attention=1.0), attention=len(sites))
    return Taught(inputs=inputs, lengths=lengths, teacher=tapped(encoder, sites), objective=objective)


def test_an_epoch_has_every_text_once_and_batches_of_similar_length(
    tiny_bert_folder: Callable[..., Path],
) -> None:
    data = taught(tiny_bert_folder("BertModel"))
    order = data.order(4, torch.Generator().manual_seed(0))
    assert sorted(order.tolist()) == list(range(21))
    assert not torch.equal(order, data.order(4, torch.Generator().manual_seed(1)))

    def padding(rows: torch.Tensor) -> int:
        return sum(int(len(part) * data.lengths[part].max()) for part in rows.split(4))

    assert padding(order) < padding(torch.arange(21))


@pytest.mark.parametrize(
    ("architecture", "inside"),
    [
        ("BertModel", "attention_probs"),
        ("BertForQuestionAnswering", ""),
        ("BertForSequenceClassification", "layer_output"),
    ],
)
def test_what_is_kept_is_what_the_teacher_computes(
    tiny_bert_folder: Callable[..., Path], architecture: str, inside: str
) -> None:
    data = taught(tiny_bert_folder(architecture), inside)
    rows = torch.tensor([3, 0, 20])
    width = data.width(rows)
    inputs, computed = data.batch(rows, width)
    data.keep()
    again, kept = data.batch(rows, width)
    assert all(torch.equal(a, b) for a, b in zip(inputs, again, strict=True))
    mask = data.objective.mask(inputs)
    for one, other in zip(computed, kept, strict=True):
        assert one.shape == other.shape
        if one.dim() == 4:  # at the tokens of a text, those of its padding aside
            one, other = (x.transpose(0, 1)[:, mask] for x in (one, other))
        elif one.shape[1] == width:
            one, other = one[mask], other[mask]
        assert torch.allclose(one, other, atol=1e-5)


def test_results_that_do_not_fit_are_computed_every_time(tiny_bert_folder: Callable[..., Path]) -> None:
    data = taught(tiny_bert_folder("BertModel"))
    data.keep(limit=1000)
    assert not data.kept


def test_a_masked_language_model_is_asked_at_masks(tiny_bert_folder: Callable[..., Path]) -> None:
    encoder = load(str(tiny_bert_folder("BertForMaskedLM")))
    assert encoder.tokenizer is not None
    mask = encoder.tokenizer.mask_token_id
    ids = texts_to_learn(encoder, TEXTS, 32)[0][0]
    assert 0.05 < float((ids == mask).sum() / (ids != 0).sum()) < 0.25
    own = texts_to_learn(encoder, ["a [MASK] b c d e f g h", "b"], 32)[0][0]
    assert int((own == mask).sum()) == 1
