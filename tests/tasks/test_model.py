from __future__ import annotations

import torch

from octavo.tasks.model import Model, run
from tests.tasks.fake import FakeEncoder


def test_every_text_is_run_once_and_progress_is_told() -> None:
    model: Model = FakeEncoder(lambda text: {"logits": [float(len(text))]}, head="sequence-classification")
    told: list[tuple[int, int]] = []
    texts = ["a", "bbb", "cc"]
    seen = {
        index: float(value)
        for indices, _, outputs in run(model, texts, 2, lambda done, total: told.append((done, total)))
        for index, value in zip(indices, outputs["logits"], strict=True)
    }
    assert seen == {0: 1.0, 1: 3.0, 2: 2.0}
    assert told == [(2, 3), (3, 3)]


def test_the_gradient_is_off_only_while_the_model_runs() -> None:
    enabled: list[bool] = []

    def outputs(text: object) -> dict[str, list[float]]:
        enabled.append(torch.is_grad_enabled())
        return {"logits": [0.0]}

    for _ in run(FakeEncoder(outputs), ["a", "b"], 1):
        assert torch.is_grad_enabled()
    assert enabled == [False, False]
