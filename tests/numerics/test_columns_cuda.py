"""The kernels against the same formulas, column by column, on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import pytest
import torch
from torch import Tensor

from octavo.numerics.adaround import _flip_columns, _Problem, _settle
from octavo.numerics.gptq import _Layer, _spread_block, _sweep_block, gptq

pytestmark = pytest.mark.gpu

# rows that fill no program, blocks narrower and wider than one warp takes, and one column
SHAPES = [(1, 1), (13, 50), (64, 128), (301, 200)]
Grid = tuple[Tensor, Tensor, Tensor]
GRIDS: dict[str, Callable[[int, int], Grid]] = {
    "one scale": lambda rows, width: (torch.tensor(0.3), torch.tensor(-8), torch.tensor(7)),
    "a scale a row": lambda rows, width: (
        torch.linspace(0.2, 0.6, rows)[:, None],
        torch.full((rows, 1), -8),
        torch.full((rows, 1), 7.0),
    ),
    "a scale a column": lambda rows, width: (
        torch.linspace(0.2, 0.6, width)[None],
        torch.tensor(-8.0),
        torch.arange(width)[None] % 5 + 3,
    ),
    "clipped": lambda rows, width: (torch.tensor(0.3), torch.tensor(-2), torch.tensor(1)),
}


def cuda(*tensors: Tensor) -> list[Tensor]:
    return [each.cuda() for each in tensors]


def agree(found: Tensor, expected: Tensor) -> bool:
    """Whether all rows are the same but for a few, where one sum rounded another way has gone on."""
    same = torch.isclose(found.cpu(), expected, rtol=1e-3, atol=1e-3).all(1)
    return int((~same).sum()) <= (len(same) + 40) // 50


def block_of(rows: int, width: int) -> tuple[Tensor, Tensor, Tensor, slice]:
    """Return a weight, an upper triangular and a positive definite matrix, and a block inside them."""
    generator = torch.Generator().manual_seed(rows)
    whole, block = width + 24, slice(16, 16 + width)
    x = torch.randn(4 * whole, whole, generator=generator)
    hessian = x.T @ x / len(x) + torch.eye(whole)
    inverse = torch.linalg.cholesky(torch.linalg.inv(hessian.double()), upper=True).float()
    return torch.randn(rows, whole, generator=generator), inverse, hessian, block


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_errors_spread_within_a_block(shape: tuple[int, int], grid: Callable[[int, int], Grid]) -> None:
    weight, inverse, _, block = block_of(*shape)
    scale, low, high = grid(shape[0], weight.shape[1])
    results = []
    for move in (list, lambda tensors: cuda(*tensors)):
        w, u, s, *bounds = move([weight.clone(), inverse, scale, low, high])
        integers = torch.zeros_like(w)
        layer = _Layer(w.double(), s, (bounds[0], bounds[1]))
        errors = _spread_block(layer, w.clone(), integers, u, block)
        results.append((integers, errors))
    (integers, errors), (found, found_errors) = results
    assert agree(found, integers) and agree(found_errors, errors)


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_block_is_swept(shape: tuple[int, int], grid: Callable[[int, int], Grid]) -> None:
    weight, _, hessian, block = block_of(*shape)
    scale, low, high = grid(shape[0], weight.shape[1])
    results = []
    for move in (list, lambda tensors: cuda(*tensors)):
        w, h, s, *bounds = move([weight, hessian, scale, low, high])
        layer = _Layer(w.double(), s, (bounds[0], bounds[1]))
        integers = layer.nearest(w)
        gradient = (integers * s - w) @ h
        steps = _sweep_block(layer, integers, h, gradient[:, block], block)
        results.append((integers, steps))
    (integers, steps), (found, found_steps) = results
    assert agree(found, integers) and agree(found_steps, steps)


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_flips_by_blocks_are_flips_by_columns(
    shape: tuple[int, int], grid: Callable[[int, int], Grid]
) -> None:
    weight, _, hessian, _ = block_of(*shape)
    shift = 0.1 * weight.flip(1) @ hessian
    hessian[:, 3] = hessian[3] = shift[:, 3] = 0  # an input that is always 0
    scale, low, high = grid(shape[0], weight.shape[1])
    problem = _Problem(weight, scale, (low, high), hessian, shift)
    scale, low, high, *others = cuda(scale, low, high, weight, hessian, shift)
    moved = _Problem(others[0], scale, (low, high), others[1], others[2])
    raised = problem.fraction >= 0.5
    found, expected = _settle(moved, raised.cuda()), _settle(problem, raised)
    assert agree(found.float(), expected.float())
    with mock.patch("octavo.numerics.adaround._flip_blocks", _flip_columns):
        assert agree(found.float(), _settle(moved, raised.cuda()).float().cpu())


@pytest.mark.parametrize("sweeps", [0, 2])
@pytest.mark.parametrize("order", [False, True], ids=["in their order", "largest first"])
def test_gptq_is_that_of_the_cpu(order: bool, sweeps: int) -> None:
    weight, _, hessian, _ = block_of(301, 300)
    shift = 0.1 * weight.flip(1) @ hessian
    scale, bounds = weight.abs().amax(1, keepdim=True) / 7, (torch.tensor(-8), torch.tensor(7))
    problem = (weight, scale, *bounds, hessian.double(), shift)
    results = []
    for w, s, low, high, h, c in (problem, cuda(*problem)):
        results.append(gptq(w, s, (low, high), h, c, order=order, sweeps=sweeps))
    expected, found = results
    assert agree(found.integers.float(), expected.integers.float())
    assert found.nearest_loss == pytest.approx(expected.nearest_loss, rel=1e-4)
    gained = expected.nearest_loss - expected.loss
    assert found.loss == pytest.approx(expected.loss, abs=1e-3 * gained)
