"""AdaRound: choose for each weight of a linear layer the grid point below or above it.

The layer's output changes by (W_hat - W) x_hat + W (x_hat - x), where x_hat is its input in the quantized
model and x in the float model. Over any number of rows its mean square is a quadratic in W_hat:

    loss(E) = tr(E A E') + 2 tr(E C') + constant,   E = W_hat - W,   A = mean of x_hat x_hat',
                                                    C = W mean of (x_hat - x) x_hat'

so an iteration is one product with the (inputs, inputs) matrix A, it sees *every* row, and no activation is
kept. W_hat = scale (floor(W / scale) + h(V)) with the rectified sigmoid h = clip(1.2 sigmoid(V) - 0.1, 0, 1);
weight * sum(1 - |2 h - 1|^beta) drives every h to 0 or 1 while beta falls (Nagel et al. 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.numerics.kernels import has_kernels

ZETA, GAMMA = 1.1, -0.1
_STRETCH = ZETA - GAMMA
_SWEEPS = 5
_BLOCK = 128


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Steps, learning rate, and the rounding term's weight, warm-up share and exponents (first, last)."""

    iterations: int
    learning_rate: float
    weight: float
    warmup: float
    beta: tuple[float, float]

    def exponent(self, iteration: int) -> float | None:
        """beta at an iteration, falling along half a cosine; None during the warm-up."""
        start = self.warmup * self.iterations
        if iteration < start:
            return None
        first, last = self.beta
        share = (iteration - start) / max(self.iterations - start, 1)
        return last + (first - last) * (1 + math.cos(share * math.pi)) / 2


@dataclass(frozen=True, eq=False)
class Rounded:
    """The chosen integers (outputs, inputs), and the loss, less its constant, to nearest and as chosen."""

    integers: Tensor
    nearest_loss: float
    loss: float


def adaround(
    weight: Tensor,
    scale: Tensor,
    bounds: tuple[Tensor, Tensor],
    moment: Tensor,
    shift: Tensor,
    schedule: Schedule,
    progress: Callable[[int], None] | None = None,
    *,
    flips: bool = True,
) -> Rounded:
    """Round a weight (outputs, inputs) to multiples of `scale`; never worse than to nearest.

    Arguments:
        scale: broadcasts against `weight`.
        bounds: the ends of the grid, counted from its zero-point; they broadcast too.
        moment: A, (inputs, inputs); shift: C, (outputs, inputs).
        progress: called with the iterations done, now and then.
        flips: flip single weights after the last iteration as long as that lowers the loss.
    """
    problem = _Problem(weight, scale, bounds, moment, shift)
    raised = _optimise(problem, schedule, progress)
    if flips:
        raised = _settle(problem, raised)
    nearest = problem.fraction >= 0.5
    losses = problem.loss(nearest.float()), problem.loss(raised.float())
    if losses[1] > losses[0]:
        raised, losses = nearest, (losses[0], losses[0])
    return Rounded((problem.floor + raised * problem.free).to(torch.int32), *losses)


class _Problem:
    """The quadratic as a function of h: E = offset + reach * h; beyond the grid's ends there is no choice."""

    def __init__(
        self, weight: Tensor, scale: Tensor, bounds: tuple[Tensor, Tensor], moment: Tensor, shift: Tensor
    ) -> None:
        low, high = bounds
        steps = weight.double() / scale.double()
        below = steps.floor()
        self.free = (below >= low) & (below < high)
        self.floor = below.clamp(low, high)
        self.fraction = (steps - below).float()
        self.offset = (self.floor * scale.double() - weight.double()).float()
        self.reach = self.free * scale
        self.moment, self.shift = moment, shift

    def gradient(self, h: Tensor) -> Tensor:
        """Half the loss's gradient by E, (outputs, inputs)."""
        return torch.addmm(self.shift, torch.addcmul(self.offset, self.reach, h), self.moment)

    def loss(self, h: Tensor) -> float:
        error = torch.addcmul(self.offset, self.reach, h).double()
        return float((error * (error @ self.moment.double() + 2 * self.shift.double())).sum())


def _optimise(problem: _Problem, schedule: Schedule, progress: Callable[[int], None] | None) -> Tensor:
    """Run Adam on V from h(V) = the fractional part; where V ends above 0 the weight is rounded up."""
    start = (problem.fraction.clamp(0, 1) - GAMMA) / _STRETCH
    v = torch.log(start / (1 - start)).contiguous()
    step = _steps(v, problem, schedule.learning_rate)
    for iteration in range(schedule.iterations):
        step(schedule.weight, schedule.exponent(iteration))
        if progress is not None and iteration % 50 == 49:
            progress(iteration + 1)
    return v >= 0


def _steps(v: Tensor, problem: _Problem, learning_rate: float) -> Callable[[float, float | None], None]:
    """Return what takes a step of Adam on V, given the rounding term's weight and exponent."""
    if has_kernels(v):
        from octavo.numerics.adaround_cuda import Descent

        return Descent(v, problem.offset, problem.reach, problem.moment, problem.shift, learning_rate).step
    # fused: one pass over memory for what is otherwise a third of an iteration
    adam = torch.optim.Adam([v], lr=learning_rate, fused=True)

    def step(weight: float, beta: float | None) -> None:
        _set_gradient(v, problem, weight, beta)
        adam.step()

    return step


def _settle(problem: _Problem, raised: Tensor) -> Tensor:
    """Flip single weights, input by input, as long as that lowers the loss.

    Where the loss is large beside the rounding term, the relaxed h end between 0 and 1, and to cut them in
    the middle undoes much of the gain. A sweep over the inputs costs about as much as one iteration.
    """
    h = raised.float()
    half_gradient = problem.gradient(h)
    sweep = _flip_blocks if has_kernels(h) else _flip_columns
    for _ in range(_SWEEPS):
        before = h.clone()
        sweep(problem, h, half_gradient)
        if torch.equal(h, before):
            break
    return h > 0.5


def _flip_columns(problem: _Problem, h: Tensor, half_gradient: Tensor) -> None:
    """Go through the inputs once; h and the gradient change in place."""
    for column in range(h.shape[1]):
        step = problem.reach[:, column] * (1 - 2 * h[:, column])
        gain = step * (2 * half_gradient[:, column] + step * problem.moment[column, column])
        step = step.where(gain < 0, 0.0)
        h[:, column] = (h[:, column] - step.ne(0).float()).abs()
        half_gradient.addr_(step, problem.moment[column])


def _flip_blocks(problem: _Problem, h: Tensor, half_gradient: Tensor) -> None:
    """Do the same by blocks of inputs, a kernel each; what follows a block learns of it all at once."""
    from octavo.numerics.columns_cuda import flip

    for start in range(0, h.shape[1], _BLOCK):
        at = slice(start, start + _BLOCK)
        h[:, at], steps = flip(h[:, at], half_gradient[:, at], problem.reach[:, at], problem.moment[at, at])
        half_gradient.addmm_(steps, problem.moment[at])


def _set_gradient(v: Tensor, problem: _Problem, weight: float, beta: float | None) -> None:
    """d(loss + rounding term) / dV by hand: autograd would keep a dozen copies of the weight."""
    sigmoid = v.sigmoid()
    raw = sigmoid.mul(_STRETCH).add_(GAMMA)
    h = torch.nn.functional.hardtanh(raw, 0.0, 1.0)
    by_h = problem.gradient(h).mul_(problem.reach).mul_(2)
    if beta is not None:
        centred = h.mul_(2).sub_(1)
        push = centred.abs().pow_(beta - 2).mul_(centred)
        by_h.sub_(push, alpha=2 * weight * beta)
    by_raw = torch.ops.aten.hardtanh_backward(by_h, raw, 0.0, 1.0)
    v.grad = torch.ops.aten.sigmoid_backward(by_raw, sigmoid).mul_(_STRETCH)
