from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from octavo.errors import MissingExtraError
from octavo.numerics import affine_from_range, fake_quantize
from octavo.numerics.learned import _function, learned_fake_quantize, zero_point_of
from octavo.numerics.straight_through import straight_through

LOW, HIGH = 0, 15
# scale 0.5, zero-point 5: the grid reaches from -2.5 to 5
LOG_SCALE, SHIFT = math.log(0.5), 5 / 15
X = torch.tensor([-9.0, -2.6, -1.1, 0.0, 0.26, 1.9, 4.9, 8.0], dtype=torch.float64)
CLIPPED = torch.tensor([True, False, False, False, False, False, False, True])


def parameters(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    log_scale = torch.tensor([LOG_SCALE], dtype=dtype, requires_grad=True)
    return log_scale, torch.tensor([SHIFT], dtype=dtype, requires_grad=True)


def gradients(weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of sum(weights * y) in x, log-scale and shift."""
    x, (log_scale, shift) = X.clone().requires_grad_(), parameters()
    y = learned_fake_quantize(x, log_scale, shift, LOW, HIGH)
    return torch.autograd.grad((y * weights).sum(), (x, log_scale, shift))  # type: ignore[return-value]


def test_values_are_those_of_fixed_quantization() -> None:
    y = learned_fake_quantize(X, *parameters(), LOW, HIGH)
    assert torch.allclose(y, fake_quantize(X, torch.tensor(0.5), torch.tensor(5), LOW, HIGH))


def test_without_a_shift_the_zero_point_is_zero() -> None:
    log_scale, _ = parameters()
    y = learned_fake_quantize(X, log_scale, None, -8, 7)
    assert torch.allclose(y, fake_quantize(X, torch.tensor(0.5), torch.tensor(0), -8, 7))
    assert zero_point_of(None, -8, 7) == 0


def test_gradient_of_x_is_one_on_the_grid_and_zero_beyond() -> None:
    grad, _, _ = gradients(torch.ones_like(X))
    assert torch.equal(grad, (~CLIPPED).double())


@pytest.mark.parametrize("place", range(len(X)))
def test_gradients_of_the_range_are_the_closed_forms(place: int) -> None:
    weights = torch.zeros_like(X)
    weights[place] = 1
    _, log_scale, shift = gradients(weights)
    v = X[place] / 0.5
    q = (v.round()).clamp(LOW - 5, HIGH - 5)
    expected = 0.5 * (q if CLIPPED[place] else q - v)
    assert torch.allclose(log_scale, expected.reshape(1))
    assert torch.allclose(shift, torch.tensor([-0.5 * 15 if CLIPPED[place] else 0.0], dtype=torch.float64))


def surrogate(log_scale: Tensor, shift: Tensor) -> Tensor:
    """The function whose exact derivative the gradients are: rounding errors held where they are now."""
    scale, zero_point = log_scale.exp(), shift * (HIGH - LOW)
    v = X / 0.5
    inside = X + (v.round() - v) * scale
    ends = torch.where(X > 0, HIGH - zero_point, LOW - zero_point) * scale
    return torch.where(CLIPPED, ends, inside)


@pytest.mark.parametrize("which", [0, 1], ids=["log-scale", "shift"])
def test_gradients_of_the_range_equal_finite_differences(which: int) -> None:
    weights = torch.randn(len(X), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = gradients(weights)[1 + which]
    step = 1e-6
    moved = []
    for sign in (1, -1):
        values = [torch.tensor([LOG_SCALE], dtype=torch.float64), torch.tensor([SHIFT], dtype=torch.float64)]
        values[which] = values[which] + sign * step
        moved.append((surrogate(*values) * weights).sum())
    assert torch.allclose(found, ((moved[0] - moved[1]) / (2 * step)).reshape(1), rtol=1e-6)


def test_gradients_of_several_groups_stay_apart() -> None:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4
    log_scale = torch.tensor([[-1.0, 0.0, 0.5]], dtype=torch.float64, requires_grad=True)
    shift = torch.tensor([[0.2, 0.5, 0.8]], dtype=torch.float64, requires_grad=True)
    learned_fake_quantize(x, log_scale, shift, LOW, HIGH).sum().backward()
    assert log_scale.grad is not None
    for channel in range(3):
        single = log_scale.detach()[0, channel : channel + 1].requires_grad_()
        offset = shift.detach()[0, channel : channel + 1]
        learned_fake_quantize(x[:, channel], single, offset, LOW, HIGH).sum().backward()
        assert single.grad is not None
        assert torch.allclose(log_scale.grad[0, channel], single.grad[0], rtol=1e-5)


@pytest.mark.parametrize("shifted", [False, True], ids=["symmetric", "asymmetric"])
def test_single_precision_is_close_to_double(shifted: bool) -> None:
    values = torch.randn(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    weights = torch.randn(4000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = []
    for dtype in (torch.float32, torch.float64):
        x, (log_scale, shift) = values.to(dtype).requires_grad_(), parameters(dtype)
        y = learned_fake_quantize(x, log_scale, shift if shifted else None, LOW, HIGH)
        (y * weights.to(dtype)).sum().backward()
        found.append([g.grad.double() for g in (x, log_scale, shift) if g.grad is not None])
    assert len(found[0]) == len(found[1]) == 2 + shifted
    for single, double in zip(*found, strict=True):
        assert torch.allclose(single, double, rtol=1e-2)


def test_gradient_scale_multiplies_the_range_only() -> None:
    x, (log_scale, shift) = X.clone().requires_grad_(), parameters()
    learned_fake_quantize(x, log_scale, shift, LOW, HIGH, 0.25).sum().backward()
    plain = gradients(torch.ones_like(X))
    assert x.grad is not None and log_scale.grad is not None and shift.grad is not None
    assert torch.equal(x.grad, plain[0])
    assert torch.allclose(log_scale.grad, plain[1] / 4)
    assert torch.allclose(shift.grad, plain[2] / 4)


def test_straight_through_has_the_bits_of_fake_quantization() -> None:
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(0)) * 3
    grid = affine_from_range(x.amin(0) / 2, x.amax(0) / 2, 8, symmetric=False)
    y = straight_through(x.requires_grad_(), grid.scale, grid.zero_point, grid.low, grid.high)
    assert torch.equal(y, fake_quantize(x.detach(), grid.scale, grid.zero_point, grid.low, grid.high))
    y.sum().backward()
    clipped = (y.detach() - x.detach()).abs() > grid.scale * 0.51
    assert x.grad is not None
    assert torch.equal(x.grad, (~clipped).float())


def test_a_gpu_without_triton_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, "octavo.numerics.learned_cuda", raising=False)
    on_gpu = SimpleNamespace(dtype=torch.float32, is_cuda=True)
    with pytest.raises(MissingExtraError, match=r"Learning ranges on a GPU needs the extra 'gpu'"):
        _function(on_gpu, torch.zeros(1))  # type: ignore[arg-type]
