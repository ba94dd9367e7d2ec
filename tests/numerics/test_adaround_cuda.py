from __future__ import annotations

import pytest
import torch
from torch import Tensor

from octavo.numerics.adaround import Schedule, _Problem, _set_gradient, adaround

pytestmark = pytest.mark.gpu

BOUNDS = (torch.tensor(-8), torch.tensor(7))


def problem(outputs: int, inputs: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return a weight, a scale for each row, and the moments of correlated inputs."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(inputs, inputs, generator=generator) / inputs**0.5
    x = torch.randn(2000, inputs, generator=generator) @ mix
    x_hat = x + 0.05 * torch.randn(x.shape, generator=generator)
    weight = torch.randn(outputs, inputs, generator=generator)
    scale = weight.abs().amax(1, keepdim=True) / 7
    return weight, scale, x_hat.T @ x_hat / len(x), weight @ ((x_hat - x).T @ x_hat / len(x))


@pytest.mark.parametrize("beta", [None, 20.0, 3.0, 2.0], ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (77, 131)], ids=str)
def test_a_step_is_that_of_adam(shape: tuple[int, int], beta: float | None) -> None:
    from octavo.numerics.adaround_cuda import Descent

    weight, scale, moment, shift = problem(*shape)
    made = _Problem(weight, scale, BOUNDS, moment, shift)
    v = torch.randn(shape, generator=torch.Generator().manual_seed(1)).mul_(2)
    v[0, 0] = 0.0  # the middle of h, where the rounding term has no slope
    descent = Descent(
        *(each.cuda() for each in (v, made.offset, made.reach, moment, shift)), learning_rate=0.02
    )
    adam = torch.optim.Adam([v], lr=0.02)
    for _ in range(3):
        _set_gradient(v, made, 0.01, beta)
        adam.step()
        descent.step(0.01, beta)
    assert bool(descent.v.isfinite().all())
    # where a gradient is almost 0, TensorFloat-32 may turn its sign, and with it a whole step
    assert float(torch.isclose(descent.v.cpu(), v, atol=2e-3).float().mean()) > 0.98
    h = (descent.v.sigmoid() * 1.2 - 0.1).clamp(0, 1).cpu()
    torch.testing.assert_close(descent.error.cpu(), made.offset + made.reach * h, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("flips", [False, True], ids=["as the paper", "with flips"])
def test_losses_are_those_of_the_cpu(flips: bool) -> None:
    schedule = Schedule(iterations=400, learning_rate=0.025, weight=0.01, warmup=0.2, beta=(20.0, 2.0))
    weight, scale, moment, shift = problem(96, 160)
    expected = adaround(weight, scale, BOUNDS, moment, shift, schedule, flips=flips)
    low, high = (bound.cuda() for bound in BOUNDS)
    on_gpu = [each.cuda() for each in (weight, scale, moment, shift)]
    before = torch.get_float32_matmul_precision()
    found = adaround(on_gpu[0], on_gpu[1], (low, high), on_gpu[2], on_gpu[3], schedule, flips=flips)
    assert torch.get_float32_matmul_precision() == before
    assert found.nearest_loss == pytest.approx(expected.nearest_loss, rel=1e-4)
    gained = expected.nearest_loss - expected.loss
    assert found.loss == pytest.approx(expected.loss, abs=0.01 * gained)


@pytest.mark.parametrize("flips", [False, True], ids=["as the paper", "with flips"])
def test_a_weight_that_lies_column_by_column_is_rounded_alike(flips: bool) -> None:
    schedule = Schedule(iterations=100, learning_rate=0.1, weight=0.01, warmup=0.2, beta=(20.0, 2.0))
    weight, scale, moment, shift = (each.cuda() for each in problem(24, 40))
    bounds = BOUNDS[0].cuda(), BOUNDS[1].cuda()
    turned = weight.T.contiguous().T, shift.T.contiguous().T
    first = adaround(weight, scale, bounds, moment, shift, schedule, flips=flips)
    second = adaround(turned[0], scale, bounds, moment, turned[1], schedule, flips=flips)
    gained = first.nearest_loss - first.loss
    assert second.loss == pytest.approx(first.loss, abs=1e-3 * gained)
