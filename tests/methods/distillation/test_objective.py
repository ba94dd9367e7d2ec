from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from octavo.graph import Encoder
from octavo.methods import load
from octavo.methods.distillation.objective import Objective
from octavo.methods.distillation.settings import Distillation
from octavo.sentence import SentenceModules

HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "embedder": ("BertModel", {}),
    "encoder": ("BertModel", {}),
    "classes": ("BertForSequenceClassification", {"num_labels": 3}),
    "tags": ("BertForTokenClassification", {"num_labels": 5}),
    "spans": ("BertForQuestionAnswering", {}),
    "masks": ("BertForMaskedLM", {}),
}
EVERYTHING = Distillation(hidden=1.0, attention=1.0)


def case(make_folder: Callable[..., Path], kind: str) -> tuple[Encoder, list[Tensor], list[Tensor], Any]:
    """An encoder, outputs of a student and a teacher with a hidden state and attention, and the inputs."""
    architecture, settings = HEADS[kind]
    encoder = load(str(make_folder(architecture, **settings)))
    encoder.sentence = SentenceModules(embeds=kind == "embedder")
    _, batch = next(encoder.batches(["one two three", "four"]))
    inputs = encoder.arguments(batch)
    torch.manual_seed(0)
    count, length = inputs[0].shape
    shapes = [*(output.shape for output in encoder.graph(*inputs)), (count, length, 8)]
    found, wanted = (
        [torch.randn(shape) for shape in shapes] + [torch.rand(count, 2, length, length).softmax(-1)]
        for _ in range(2)
    )
    return encoder, found, wanted, inputs


@pytest.mark.parametrize("kind", HEADS)
def test_padding_counts_nowhere(tiny_bert_folder: Callable[..., Path], kind: str) -> None:
    encoder, found, wanted, inputs = case(tiny_bert_folder, kind)
    objective = Objective(encoder, EVERYTHING, hidden=1, attention=1)
    padding = ~objective.mask(inputs)
    assert padding.any()
    before = objective.loss(found, wanted, inputs)
    assert torch.isfinite(before) and before > 0
    for output in (*found, *wanted):
        if output.shape[:2] == padding.shape:
            output[padding] = 1e6 * torch.rand(())
        if output.dim() == 4:
            output.movedim(1, 2)[padding] = 0.5
    assert torch.allclose(objective.loss(found, wanted, inputs), before, rtol=1e-5)


@pytest.mark.parametrize("kind", HEADS)
def test_no_shape_depends_on_a_value_so_that_a_step_can_be_recorded(
    tiny_bert_folder: Callable[..., Path], kind: str
) -> None:
    encoder, found, wanted, inputs = case(tiny_bert_folder, kind)
    objective = Objective(encoder, EVERYTHING, hidden=1, attention=1)
    with FakeTensorMode() as mode:
        fake = [mode.from_tensor(tensor) for tensor in (*found, *wanted, *inputs)]
        objective._special = mode.from_tensor(objective._special)
        outputs, reference = fake[: len(found)], fake[len(found) : 2 * len(found)]
        loss = objective.loss(outputs, reference, fake[2 * len(found) :])
    assert loss.shape == ()
