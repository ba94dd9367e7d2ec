"""Columns one after another on a GPU: what GPTQ and AdaRound's flips do inside a block of columns.

Column j takes a value and with it a step, one for each row; then step times row j of a matrix is added to
the state of all columns, from which column j + 1 takes its value. Written out that is eight small kernels
a column. Here one program keeps a few rows of a block in registers and goes through all its columns, for rows
know nothing of each other. What differs is the rule that gives value and step.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

# One warp holds the rows of a program as long as a block is no wider than this: sums over columns then need
# neither shared memory nor barriers, and the latency of 128 columns in turn is what a launch takes.
_WIDTH = 128
_ROWS = 4
# 1.5 * 2^23: adding it leaves no room for a fraction, which rounds half to even; exact below 2^22 in size
_NO_FRACTION = tl.constexpr(12582912.0)

Grid = tuple[Tensor, Tensor, Tensor]
"""Scale and bounds, (rows, width) each; they may be expanded, and bounds may be whole in type."""


def spread(weight: Tensor, grid: Grid, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """Round the columns of a block as GPTQ does; the integers, as floats, and the errors, (rows, width) each.

    Arguments:
        weight: (rows, width); inverse: U of the block, (width, width).
    """
    integers, steps = _run(_spread, weight, weight, grid, inverse)
    return integers, steps.neg_()


def sweep(integers: Tensor, half_gradient: Tensor, grid: Grid, hessian: Tensor) -> tuple[Tensor, Tensor]:
    """Give the columns of a block their best values given all others; the new integers and the steps.

    Arguments:
        integers, half_gradient: (rows, width); hessian: that of the block, (width, width).
    """
    return _run(_sweep, half_gradient, integers, grid, hessian)


def flip(h: Tensor, half_gradient: Tensor, reach: Tensor, moment: Tensor) -> tuple[Tensor, Tensor]:
    """Flip what lowers the loss in the columns of a block; the new h and the steps.

    Arguments:
        h, half_gradient, reach: (rows, width); moment: that of the block, (width, width).
    """
    return _run(_flip, half_gradient, h, (reach, reach, reach), moment)


@triton.jit
def _nearest(x, scale, low, high):  # type: ignore[no-untyped-def]
    x = tl.minimum(tl.maximum(tl.div_rn(x, scale), low), high)  # whole bounds: clipping first is the same
    return (x + _NO_FRACTION) - _NO_FRACTION


@triton.jit
def _spread(value, state, diagonal, scale, low, high):  # type: ignore[no-untyped-def]
    value = _nearest(state, scale, low, high)
    return value, tl.div_rn(value * scale - state, diagonal)


@triton.jit
def _sweep(value, state, diagonal, scale, low, high):  # type: ignore[no-untyped-def]
    best = _nearest(value * scale - tl.div_rn(state, diagonal), scale, low, high)
    return best, (best - value) * scale


@triton.jit
def _flip(value, state, diagonal, scale, low, high):  # type: ignore[no-untyped-def]
    step = scale * (1 - 2 * value)
    gains = step * (2 * state + step * diagonal) < 0
    return tl.where(gains, 1 - value, value), tl.where(gains, step, 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _columns(  # type: ignore[no-untyped-def]
    state,
    values,
    matrix,
    scale,
    low,
    high,
    chosen,
    steps,
    rows,
    width,
    state_row,
    values_row,
    matrix_row,
    scale_row,
    scale_column,
    low_row,
    low_column,
    high_row,
    high_column,
    RULE: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    there = row < rows
    tile = there[:, None] & (column < width)[None, :]
    states = tl.load(state + row[:, None] * state_row + column[None, :], mask=tile, other=0.0)
    before = tl.load(values + row[:, None] * values_row + column[None, :], mask=tile, other=0.0)
    after = tl.zeros_like(states)
    moved = tl.zeros_like(states)
    for j in range(width):
        line = tl.load(matrix + j * matrix_row + column, mask=column < width, other=0.0)
        own = (column == j)[None, :]
        value, step = RULE(
            tl.sum(tl.where(own, before, 0.0), 1),
            tl.sum(tl.where(own, states, 0.0), 1),
            tl.load(matrix + j * matrix_row + j),
            tl.load(scale + row * scale_row + j * scale_column, mask=there, other=1.0),
            tl.load(low + row * low_row + j * low_column, mask=there, other=0).to(tl.float32),
            tl.load(high + row * high_row + j * high_column, mask=there, other=0).to(tl.float32),
        )
        states += step[:, None] * line[None, :]
        after = tl.where(own, value[:, None], after)
        moved = tl.where(own, step[:, None], moved)
    tl.store(chosen + row[:, None] * width + column[None, :], after, mask=tile)
    tl.store(steps + row[:, None] * width + column[None, :], moved, mask=tile)


def _run(rule: Any, state: Tensor, values: Tensor, grid: Grid, matrix: Tensor) -> tuple[Tensor, Tensor]:
    rows, width = state.shape
    state, values, matrix = (_with_whole_rows(each) for each in (state, values, matrix))
    chosen, steps = (torch.empty(state.shape, device=state.device) for _ in range(2))
    wide = max(_WIDTH, triton.next_power_of_2(width))
    with torch.cuda.device_of(state):
        _columns[(triton.cdiv(rows, _ROWS),)](
            *(state, values, matrix, *grid, chosen, steps, rows, width),
            *(state.stride(0), values.stride(0), matrix.stride(0)),
            *(stride for each in grid for stride in each.stride()),
            RULE=rule,
            ROWS=_ROWS,
            WIDTH=wide,
            num_warps=min(wide // _WIDTH, 32),
        )
    return chosen, steps


def _with_whole_rows(tensor: Tensor) -> Tensor:
    """Return a tensor whose rows lie in one piece: factors come out of LAPACK column by column."""
    return tensor if tensor.stride(1) == 1 else tensor.contiguous()
