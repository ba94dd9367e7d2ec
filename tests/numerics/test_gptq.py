from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from octavo.numerics.adaround import Rounded
from octavo.numerics.gptq import damped, gptq, upper_inverse

BOUNDS = (torch.tensor(-8), torch.tensor(7))


def problem(outputs: int, inputs: int, rows: int = 400, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return a weight and correlated inputs, in float64."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(inputs, inputs, generator=generator, dtype=torch.float64)
    x = torch.randn(rows, inputs, generator=generator, dtype=torch.float64) @ mix
    return torch.randn(outputs, inputs, generator=generator), x


def moment(x: Tensor) -> Tensor:
    return x.T @ x / len(x)


def loss(integers: Tensor, weight: Tensor, scale: Tensor, hessian: Tensor) -> Tensor:
    """Return the damped loss of every row in float64, by the definition."""
    error = (integers * scale).double() - weight.double()
    return torch.einsum("oi,ij,oj->o", error, hessian, error)


def by_elimination(
    weight: Tensor, scale: float, hessian: Tensor, columns: list[int], low: int, high: int
) -> Tensor:
    """Optimal brain quantization in a given order, a row at a time, the inverse of what is left made anew."""
    chosen = torch.empty_like(weight, dtype=torch.float64)
    for row in range(len(weight)):
        w, left = weight[row].double().clone(), list(columns)
        for j in columns:
            inverse = torch.linalg.inv(hessian[left][:, left])
            place = left.index(j)
            chosen[row, j] = (w[j] / scale).round().clamp(low, high)
            error = (w[j] - chosen[row, j] * scale) / inverse[place, place]
            w[left] -= error * inverse[:, place]
            left.remove(j)
    return chosen


@pytest.mark.parametrize("order", [False, True], ids=["in their order", "largest first"])
@pytest.mark.parametrize("block", [1, 3, 128])
def test_it_is_optimal_brain_quantization_in_a_fixed_order(order: bool, block: int) -> None:
    weight, x = problem(6, 9)
    hessian = damped(moment(x), 0.01)
    columns = torch.argsort(hessian.diagonal(), descending=True).tolist() if order else list(range(9))
    expected = by_elimination(weight, 0.5, hessian, columns, -8, 7)
    nearest = (weight / 0.5).round().clamp(-8, 7)
    better = loss(expected, weight, torch.tensor(0.5), hessian) <= loss(
        nearest, weight, torch.tensor(0.5), hessian
    )
    found = gptq(weight, torch.tensor(0.5), BOUNDS, moment(x), order=order, block=block)
    assert torch.equal(found.integers[better].double(), expected[better])
    assert torch.equal(found.integers[~better].float(), nearest[~better])
    assert better.sum() >= 4


def test_the_factor_is_the_upper_cholesky_factor_of_the_inverse() -> None:
    _, x = problem(1, 12)
    hessian = damped(moment(x), 0.01)
    expected = torch.linalg.cholesky(torch.linalg.inv(hessian), upper=True)
    torch.testing.assert_close(upper_inverse(hessian), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_no_row_is_worse_than_to_nearest(bits: int, seed: int) -> None:
    weight, x = problem(16, 24, seed=seed)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    scale = weight.abs().amax(1, keepdim=True) / high
    found = gptq(weight, scale, (torch.tensor(low), torch.tensor(high)), moment(x))
    hessian = damped(moment(x), 0.01)
    nearest = loss((weight / scale).round().clamp(low, high), weight, scale, hessian)
    chosen = loss(found.integers, weight, scale, hessian)
    assert bool((chosen <= nearest * (1 + 1e-9)).all())
    assert float(chosen.sum()) < 0.9 * float(nearest.sum())
    assert (found.nearest_loss, found.loss) == pytest.approx(
        (float(nearest.sum()), float(chosen.sum())), rel=1e-4
    )
    assert int(found.integers.min()) >= low and int(found.integers.max()) <= high


def test_it_lies_between_nearest_and_the_best_of_all_integers() -> None:
    """Brute force over all 7^5 roundings of every row; sweeps come nearer to the best."""
    weight, x = problem(12, 5, seed=3)
    bounds, scale = (torch.tensor(-4), torch.tensor(2)), torch.tensor(0.8)
    hessian = damped(moment(x), 0.01)
    grids = torch.tensor(list(product(range(-4, 3), repeat=5)), dtype=torch.float64)
    rows = [loss(grids, row.expand(len(grids), -1), scale, hessian).min() for row in weight]
    best = float(torch.stack(rows).sum())
    plain, swept = (gptq(weight, scale, bounds, moment(x), sweeps=sweeps) for sweeps in (0, 9))
    assert best <= swept.loss < plain.loss < plain.nearest_loss
    assert swept.loss < best + 0.4 * (plain.nearest_loss - best)


def test_after_sweeps_no_single_change_helps() -> None:
    weight, x = problem(6, 10, seed=1)
    scale = torch.tensor(0.6)
    hessian = damped(moment(x), 0.01)
    found = gptq(weight, scale, BOUNDS, moment(x), sweeps=20).integers
    least = loss(found, weight, scale, hessian)
    for column, step in product(range(10), (-1, 1)):
        changed = found.clone()
        changed[:, column] = (changed[:, column] + step).clamp(-8, 7)
        assert bool((loss(changed, weight, scale, hessian) >= least * (1 - 1e-6)).all())


def test_a_shifted_input_is_made_up_for() -> None:
    """With C the least loss is that of the regression from x_hat to W x; a fine grid reaches it."""
    weight, x = problem(4, 8)
    x_hat = x @ torch.diag(torch.linspace(0.8, 1.2, 8, dtype=torch.float64))
    shift = weight.double() @ ((x_hat - x).T @ x_hat / len(x))
    fine = torch.tensor(1e-4)
    bounds = (torch.tensor(-(2**20)), torch.tensor(2**20))
    found = gptq(weight, fine, bounds, moment(x_hat), shift, damping=1e-9)
    expected = weight.double() @ torch.diag(1 / torch.linspace(0.8, 1.2, 8, dtype=torch.float64))
    torch.testing.assert_close(found.integers * fine.double(), expected, rtol=1e-3, atol=1e-3)


def test_dead_inputs_round_to_nearest_and_disturb_nothing() -> None:
    weight, x = problem(8, 10)
    x[:, [2, 7]] = 0
    alive = [0, 1, 3, 4, 5, 6, 8, 9]
    found = gptq(weight, torch.tensor(0.4), BOUNDS, moment(x))
    nearest = (weight / 0.4).round().clamp(-8, 7)
    assert torch.equal(found.integers[:, [2, 7]].float(), nearest[:, [2, 7]])
    # the mean diagonal, and with it the damping, is over all inputs
    damping = 0.01 * len(alive) / 10
    alone = gptq(weight[:, alive], torch.tensor(0.4), BOUNDS, moment(x)[alive][:, alive], damping=damping)
    assert torch.equal(found.integers[:, alive], alone.integers)


def test_inputs_that_are_all_zero_leave_the_weight_at_nearest() -> None:
    weight, x = problem(3, 6)
    found = gptq(weight, torch.tensor(0.4), BOUNDS, moment(x) * 0, order=True, sweeps=2)
    assert torch.equal(found.integers.float(), (weight / 0.4).round().clamp(-8, 7))


def test_fewer_rows_than_inputs_are_no_obstacle() -> None:
    weight, x = problem(8, 32, rows=5)
    found = gptq(weight, torch.tensor(0.4), BOUNDS, moment(x), order=True)
    assert found.loss < found.nearest_loss


@pytest.mark.parametrize("order", [False, True])
def test_grids_may_differ_by_row_and_by_column(order: bool) -> None:
    weight, x = problem(4, 6)
    rows = torch.tensor([[0.2], [0.3], [0.4], [0.5]])
    whole = gptq(weight, rows, BOUNDS, moment(x), order=order)
    for row in range(4):
        alone = gptq(weight[row : row + 1], rows[row], BOUNDS, moment(x), order=order)
        assert torch.equal(whole.integers[row : row + 1], alone.integers)
    columns = torch.linspace(0.2, 0.5, 6)[None]
    by_column: Rounded = gptq(weight, columns, BOUNDS, moment(x), order=order)
    assert by_column.loss < by_column.nearest_loss


def test_weights_on_the_grid_stay_where_they_are() -> None:
    _, x = problem(1, 4)
    integers = torch.tensor([[-8, -3, 0, 6]])
    for order in (False, True):
        found = gptq(integers * 0.5, torch.tensor(0.5), BOUNDS, moment(x), order=order, sweeps=1)
        assert torch.equal(found.integers, integers.int())
