from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from octavo.numerics.distillation import (
    cosine_distance,
    divergence,
    label_divergence,
    relation,
    relative_error,
)


def rows(seed: int, shape: tuple[int, ...] = (6, 5)) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_divergence_is_that_of_torch_times_the_squared_temperature() -> None:
    x, y = rows(0), rows(1)
    for temperature in (1.0, 2.5):
        p, q = (functional.log_softmax(logits / temperature, -1) for logits in (y, x))
        wanted = functional.kl_div(q, p, reduction="batchmean", log_target=True) * temperature**2
        assert float(divergence(x, y, temperature=temperature)) == pytest.approx(float(wanted))


def test_places_that_do_not_count_change_nothing_and_take_no_gradient() -> None:
    x, y = rows(0).requires_grad_(), rows(1)
    valid = torch.ones(6, 5, dtype=torch.bool)
    valid[:, 3:] = False
    loss = divergence(x, y, valid)
    wanted = divergence(x[:, :3], y[:, :3])
    assert float(loss.detach()) == pytest.approx(float(wanted.detach()))
    loss.backward()
    assert x.grad is not None and torch.isfinite(x.grad).all() and not x.grad[:, 3:].any()


def test_the_divergence_of_labels_is_that_of_two_classes_each() -> None:
    x, y = rows(0, (4, 3)), rows(1, (4, 3))
    wanted = sum(
        float(divergence(*(torch.stack((torch.zeros(4), each[:, label]), 1) for each in (x, y))))
        for label in range(3)
    )
    assert float(label_divergence(x, y)) == pytest.approx(wanted)


def test_distances_by_hand() -> None:
    x, y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    assert float(cosine_distance(x, y)) == pytest.approx((1 - math.sqrt(0.5) + 0) / 2)
    assert float(relation(x, y)) == pytest.approx(0.5)  # the cosine of the two rows is 0, and was √0.5
    assert float(relative_error(x, y)) == pytest.approx((0.5 + 1) / 2)


@pytest.mark.parametrize("loss", [divergence, label_divergence, cosine_distance, relation, relative_error])
def test_a_perfect_student_has_no_loss_and_no_rows_have_none_either(loss: object) -> None:
    assert callable(loss)
    assert float(loss(rows(0), rows(0))) == pytest.approx(0, abs=1e-12)
    assert float(loss(rows(0, (0, 5)), rows(0, (0, 5)))) == 0
    assert float(relation(rows(0, (1, 5)), rows(1, (1, 5)))) == 0
