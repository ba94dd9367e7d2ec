"""GPTQ: round the inputs of a linear layer one after another, each making up for the errors before it.

With x_hat the layer's input in the quantized model and x in the float model, the output changes by
(W_hat - W) x_hat + W (x_hat - x). Over any number of rows its mean square, damped, is

    loss(E) = tr(E H E') + 2 tr(E C'),   E = W_hat - W,   H = mean of x_hat x_hat' + damping,
                                         C = W mean of (x_hat - x) x_hat', or 0

which is least at W* = W - C H^-1. Column by column, in a fixed order, w_j is rounded and the columns j+1, ...
take the value that is best given all that is rounded (Frantar et al. 2022). The inverse Hessian of what is
still free is what elimination leaves, so that one Cholesky factor serves all columns: H^-1 = U' U, U upper
triangular, and the error of column j goes to the column k > j times U_jk / U_jj. Columns beyond a block are
brought up to date once a block.
"""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.numerics.adaround import Rounded
from octavo.numerics.kernels import has_kernels


def gptq(
    weight: Tensor,
    scale: Tensor,
    bounds: tuple[Tensor, Tensor],
    moment: Tensor,
    shift: Tensor | None = None,
    *,
    damping: float = 0.01,
    order: bool = False,
    block: int = 128,
    sweeps: int = 0,
) -> Rounded:
    """Round a weight (outputs, inputs) to multiples of `scale`; no row is worse than to nearest.

    Arguments:
        scale: broadcasts against `weight`.
        bounds: the ends of the grid, counted from its zero-point; they broadcast too.
        moment: mean of x_hat x_hat', (inputs, inputs) in float64; shift: C, (outputs, inputs), or None for 0.
        damping: share of the moment's mean diagonal that is added to its diagonal; more than 0, so that
            inputs that are always 0, or fewer rows than inputs, do no harm.
        order: round inputs in the order of falling diagonal ("act-order") instead of their own.
        block: columns between two updates of all that follow.
        sweeps: how often, in the end, every weight goes to its best value given all others.
    """
    hessian = damped(moment, damping)
    layer = _Layer(weight.double(), scale, bounds)
    nearest = layer.nearest(layer.weight)
    columns = torch.argsort(hessian.diagonal(), descending=True, stable=True) if order else None
    if columns is not None:
        layer, hessian = layer.reordered(columns), hessian[columns][:, columns]
        shift = None if shift is None else shift[:, columns]
    inverse = upper_inverse(hessian)
    wanted = layer.weight
    if shift is not None:  # W - C H^-1
        wanted = wanted - shift.double() @ inverse.T @ inverse
    integers = _spread(layer, wanted.float(), inverse.float(), block)
    pull = torch.zeros_like(layer.weight) if shift is None else shift.double()
    for _ in range(sweeps):
        integers = _sweep(layer, integers, hessian.float(), pull.float(), block)
    if columns is not None:
        nearest = nearest[:, columns]
    before, after = (_losses(layer, each, hessian, pull) for each in (nearest, integers))
    chosen = torch.where((after <= before)[:, None], integers, nearest)
    if columns is not None:
        chosen = torch.empty_like(chosen).index_copy_(1, columns, chosen)
    return Rounded(chosen.to(torch.int32), float(before.sum()), float(torch.minimum(before, after).sum()))


def damped(moment: Tensor, damping: float) -> Tensor:
    """Return a moment in float64 with a share of its mean diagonal added to the diagonal."""
    hessian = moment.double().clone()
    mean = hessian.diagonal().mean()
    hessian.diagonal().add_(damping * mean if mean > 0 else 1.0)
    return hessian


def upper_inverse(hessian: Tensor) -> Tensor:
    """Return U, upper triangular, with U' U the inverse of a positive definite matrix, both in float64.

    The Cholesky factor of the matrix read backwards, read backwards, is R with R R' = H, upper triangular;
    so U = R^-1, and the inverse itself is never formed.
    """
    factor = torch.linalg.cholesky(hessian.flip(0, 1)).flip(0, 1)
    eye = torch.eye(len(hessian), dtype=hessian.dtype, device=hessian.device)
    inverse: Tensor = torch.linalg.solve_triangular(factor, eye, upper=True)
    return inverse


class _Layer:
    """A weight in float64 and its grid, spread over all elements."""

    def __init__(self, weight: Tensor, scale: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
        self.weight = weight
        self.scale, self.low, self.high = (
            torch.as_tensor(each, device=weight.device).expand_as(weight) for each in (scale, *bounds)
        )

    def reordered(self, columns: Tensor) -> _Layer:
        grid = (each[:, columns] for each in (self.low, self.high))
        low, high = grid
        return _Layer(self.weight[:, columns], self.scale[:, columns], (low, high))

    def grid(self, columns: slice | int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the scale and the bounds of some columns."""
        return self.scale[:, columns], self.low[:, columns], self.high[:, columns]

    def nearest(self, values: Tensor, columns: slice | int = slice(None)) -> Tensor:
        """Return the integers nearest to the values of some columns, as floats."""
        scale, low, high = self.grid(columns)
        return (values / scale).round().clamp(low, high)


def _spread(layer: _Layer, weight: Tensor, inverse: Tensor, block: int) -> Tensor:
    """Round column by column and spread each error over the columns that follow; the integers, as floats."""
    weight = weight.clone()
    integers = torch.empty_like(weight)
    width = weight.shape[1]
    for start in range(0, width, block):
        stop = min(start + block, width)
        errors = _spread_block(layer, weight, integers, inverse, slice(start, stop))
        weight[:, stop:].addmm_(errors, inverse[start:stop, stop:], alpha=-1)
    return integers


def _spread_block(layer: _Layer, weight: Tensor, integers: Tensor, inverse: Tensor, block: slice) -> Tensor:
    """Round the columns of a block, which changes them and their integers in place; the errors."""
    if has_kernels(weight):
        from octavo.numerics.columns_cuda import spread

        integers[:, block], errors = spread(weight[:, block], layer.grid(block), inverse[block, block])
        return errors
    start, stop = block.start, block.stop
    errors = torch.empty_like(weight[:, block])
    for j in range(start, stop):
        integers[:, j] = layer.nearest(weight[:, j], j)
        error = (weight[:, j] - integers[:, j] * layer.scale[:, j]) / inverse[j, j]
        weight[:, j + 1 : stop].addr_(error, inverse[j, j + 1 : stop], alpha=-1)
        errors[:, j - start] = error
    return errors


def _sweep(layer: _Layer, integers: Tensor, hessian: Tensor, pull: Tensor, block: int) -> Tensor:
    """Give every weight, input by input, its best value given all others; the loss never rises."""
    integers = integers.clone()
    half_gradient = (integers * layer.scale - layer.weight).float() @ hessian + pull
    width = integers.shape[1]
    for start in range(0, width, block):
        own = slice(start, min(start + block, width))
        steps = _sweep_block(layer, integers, hessian, half_gradient[:, own], own)
        half_gradient.addmm_(steps, hessian[own])
    return integers


def _sweep_block(
    layer: _Layer, integers: Tensor, hessian: Tensor, half_gradient: Tensor, block: slice
) -> Tensor:
    """Give the columns of a block their best values, in place; the steps. The gradient is the block's."""
    if has_kernels(integers):
        from octavo.numerics.columns_cuda import sweep

        integers[:, block], steps = sweep(
            integers[:, block], half_gradient, layer.grid(block), hessian[block, block]
        )
        return steps
    start, stop = block.start, block.stop
    own = half_gradient.clone()
    steps = torch.empty_like(own)
    for j in range(start, stop):
        value = integers[:, j] * layer.scale[:, j]
        best = layer.nearest(value - own[:, j - start] / hessian[j, j], j)
        steps[:, j - start] = (best - integers[:, j]) * layer.scale[:, j]
        own.addr_(steps[:, j - start], hessian[j, start:stop])
        integers[:, j] = best
    return steps


def _losses(layer: _Layer, integers: Tensor, hessian: Tensor, pull: Tensor) -> Tensor:
    """Return the loss of every row, (outputs,), less what does not depend on the integers."""
    error = integers.double() * layer.scale.double() - layer.weight
    return (error * (error @ hessian + 2 * pull)).sum(1)
