"""Linear layers whose matrix products take bfloat16 while gradients are computed, for CPUs that multiply it.

Inputs, weights and gradients are rounded to 8 significant bits before each of the three products, whose sums
stay in float32: in training, noise far below that of 8-bit grids, for a quarter of the time on processors
with AVX-512 BF16 or AMX. Without gradients a layer computes as it always does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def multiplies_half() -> bool:
    """Return whether this processor has products of bfloat16 faster than those of float32."""
    known = torch.cpu.get_capabilities()
    return bool(known.get("avx512_bf16") or known.get("amx_bf16"))


def half_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x W^T + b; where gradients are wanted of float32 tensors on the CPU, by products of bfloat16."""
    if not torch.is_grad_enabled() or x.dtype != torch.float32 or x.device.type != "cpu":
        return functional.linear(x, weight, bias)
    result: Tensor = _HalfLinear.apply(x, weight)  # type: ignore[no-untyped-call]
    return result if bias is None else result + bias


class _HalfLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        rows, matrix = x.flatten(0, -2).bfloat16(), weight.bfloat16()
        ctx.save_for_backward(rows, matrix)
        result: Tensor = (rows @ matrix.T).float().reshape(*x.shape[:-1], -1)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, matrix = ctx.saved_tensors
        shape = grads[0].shape[:-1]
        grad = grads[0].flatten(0, -2).bfloat16()
        needs_input, needs_weight = ctx.needs_input_grad
        return (
            (grad @ matrix).float().reshape(*shape, -1) if needs_input else None,
            (grad.T @ rows).float() if needs_weight else None,
        )
