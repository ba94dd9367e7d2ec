from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from octavo.numerics.adaround import (
    Rounded,
    Schedule,
    _flip_blocks,
    _flip_columns,
    _Problem,
    _set_gradient,
    adaround,
)

SCHEDULE = Schedule(iterations=500, learning_rate=0.02, weight=0.01, warmup=0.2, beta=(20.0, 2.0))
BOUNDS = (torch.tensor(-8), torch.tensor(7))


def rounded(
    weight: Tensor,
    x: Tensor,
    x_hat: Tensor,
    scale: Tensor,
    schedule: Schedule = SCHEDULE,
    flips: bool = True,
) -> Rounded:
    moment, cross = x_hat.T @ x_hat / len(x), (x_hat - x).T @ x_hat / len(x)
    return adaround(weight, scale, BOUNDS, moment, weight @ cross, schedule, flips=flips)


def output_error(integers: Tensor, weight: Tensor, x: Tensor, x_hat: Tensor, scale: Tensor) -> float:
    """Return the mean squared change of the outputs, summed over outputs, in float64."""
    change = x_hat.double() @ (integers * scale).double().T - x.double() @ weight.double().T
    return float(change.square().sum(1).mean())


def problem(outputs: int, inputs: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return a weight and correlated inputs of the float and of a disturbed model."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(inputs, inputs, generator=generator)
    x = torch.randn(400, inputs, generator=generator) @ mix + torch.randn(inputs, generator=generator)
    x_hat = x + 0.1 * torch.randn(400, inputs, generator=generator)
    return torch.randn(outputs, inputs, generator=generator), x, x_hat


def test_outputs_change_much_less_than_to_nearest() -> None:
    weight, x, x_hat = problem(16, 48)
    scale = torch.tensor(0.4)
    found = rounded(weight, x, x_hat, scale)
    nearest = output_error((weight / scale).round().clamp(-8, 7), weight, x, x_hat, scale)
    assert output_error(found.integers, weight, x, x_hat, scale) < 0.6 * nearest


def test_flips_can_be_left_out_and_only_ever_help() -> None:
    weight, x, x_hat = problem(16, 48)
    scale = torch.tensor(0.4)
    plain = rounded(weight, x, x_hat, scale, flips=False)
    assert rounded(weight, x, x_hat, scale).loss < plain.loss <= plain.nearest_loss


def test_one_input_shared_by_two_weights_rounds_them_apart() -> None:
    """0.4 + 0.4 of the same x is 0.8 of it: one goes up and the other down, and nearest gives 0."""
    x = torch.ones(10, 2)
    found = rounded(torch.tensor([[0.4, 0.41]]), x, x, torch.tensor(1.0))
    assert found.integers.tolist() == [[0, 1]]


def test_every_weight_goes_to_a_neighbour_on_the_grid() -> None:
    weight, x, x_hat = problem(8, 16)
    scale = torch.rand(8, 1) * 0.3 + 0.2
    found = rounded(weight, x, x_hat, scale)
    steps = weight / scale
    low, high = steps.floor().clamp(-8, 7), steps.ceil().clamp(-8, 7)
    assert bool(((found.integers == low) | (found.integers == high)).all())


def test_weights_beyond_the_grid_stay_at_its_ends() -> None:
    weight, x, x_hat = problem(2, 4)
    weight[0, 0], weight[1, 1] = 50.0, -50.0
    found = rounded(weight, x, x_hat, torch.tensor(0.4))
    assert (int(found.integers[0, 0]), int(found.integers[1, 1])) == (7, -8)


def test_weights_on_the_grid_stay_where_they_are() -> None:
    _, x, _ = problem(1, 4)
    integers = torch.tensor([[-8, -3, 0, 6]])
    found = rounded(integers * 0.5, x, x, torch.tensor(0.5))
    assert torch.equal(found.integers, integers.int())


def test_losses_differ_by_the_change_of_the_outputs_error() -> None:
    weight, x, x_hat = problem(4, 8)
    scale = torch.tensor(0.5)
    found = rounded(weight, x, x_hat, scale)
    nearest = output_error((weight / scale).round().clamp(-8, 7), weight, x, x_hat, scale)
    error = output_error(found.integers, weight, x, x_hat, scale)
    assert found.nearest_loss - found.loss == pytest.approx(nearest - error, rel=1e-3)


def test_it_is_never_worse_than_to_nearest() -> None:
    weight, x, x_hat = problem(4, 8)
    hasty = Schedule(iterations=1, learning_rate=30.0, weight=0.01, warmup=0.0, beta=(20.0, 2.0))
    found = rounded(weight, x, x_hat, torch.tensor(0.5), hasty)
    assert found.loss <= found.nearest_loss


def test_what_follows_a_block_learns_of_its_flips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 7 inputs, each by the formulas of the CPU, end where inputs one after another do."""

    def flip(h: Tensor, half_gradient: Tensor, reach: Tensor, moment: Tensor) -> tuple[Tensor, Tensor]:
        after = h.clone()
        block: Any = SimpleNamespace(reach=reach, moment=moment)
        _flip_columns(block, after, half_gradient.clone())
        return after, reach * (after - h)

    kernels: Any = ModuleType("kernels")
    kernels.flip = flip
    monkeypatch.setitem(sys.modules, "octavo.numerics.columns_cuda", kernels)
    monkeypatch.setattr("octavo.numerics.adaround._BLOCK", 7)
    weight, x, x_hat = problem(16, 24)
    moment = x_hat.T @ x_hat / len(x)
    made = _Problem(weight, torch.tensor(0.4), BOUNDS, moment, torch.zeros(16, 24))
    h = (made.fraction >= 0.5).float()
    half_gradient = made.gradient(h)
    found = h.clone()
    _flip_blocks(made, found, half_gradient.clone())
    _flip_columns(made, expected := h.clone(), half_gradient)
    assert not torch.equal(found, h)
    assert torch.equal(found, expected)


def test_the_exponent_falls_after_the_warm_up() -> None:
    exponents = [SCHEDULE.exponent(iteration) for iteration in (0, 99, 100, 300, 499)]
    assert exponents == [None, None, 20.0, 11.0, pytest.approx(2.0, abs=0.01)]


def test_the_gradient_is_that_of_autograd() -> None:
    weight, x, x_hat = problem(3, 5)
    moment, shift = x_hat.T @ x_hat / len(x), torch.randn(3, 5)
    made = _Problem(weight, torch.tensor(0.4), BOUNDS, moment, shift)
    v = torch.randn(3, 5, dtype=torch.float32).mul_(3)
    _set_gradient(v, made, 0.01, 5.0)
    leaf = v.detach().clone().requires_grad_()
    h = (leaf.sigmoid() * 1.2 - 0.1).clamp(0, 1)
    error = made.offset + made.reach * h
    loss = (error * (error @ moment + 2 * shift)).sum() + 0.01 * (1 - (2 * h - 1).abs().pow(5.0)).sum()
    loss.backward()
    assert v.grad is not None and leaf.grad is not None
    torch.testing.assert_close(v.grad, leaf.grad, rtol=1e-4, atol=1e-4)
