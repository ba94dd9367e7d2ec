from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from octavo.numerics.learned import Exact, learned_fake_quantize
from octavo.numerics.learned_compact import BLOCK
from octavo.numerics.learned_rows import CompactRows, has_rows


def run(function: Any, x: Tensor, asymmetric: bool, low: int, high: int) -> list[Tensor]:
    leaf = x.clone().requires_grad_()
    log_scale = (x.abs().amax(1, keepdim=True) / (high * 1.2)).log().requires_grad_()
    shift = torch.linspace(0.3, 0.6, len(x))[:, None].requires_grad_() if asymmetric else None
    y = function(leaf, log_scale, shift, low, high, 0.5)
    (y * torch.arange(y.numel()).view_as(y).sin()).sum().backward()
    return [y.detach(), *(p.grad for p in (leaf, log_scale, shift) if p is not None and p.grad is not None)]


@pytest.mark.parametrize(("asymmetric", "low", "high"), [(False, -8, 7), (True, 0, 3), (False, -127, 127)])
@pytest.mark.parametrize("columns", [2, 384, BLOCK + 1])
def test_a_range_a_row_has_the_exact_values_and_gradients(
    asymmetric: bool, low: int, high: int, columns: int
) -> None:
    x = torch.randn(5, columns, generator=torch.Generator().manual_seed(0))
    exact = run(Exact.apply, x, asymmetric, low, high)
    compact = run(CompactRows.apply, x, asymmetric, low, high)
    assert len(exact) == len(compact) == 3 + asymmetric
    assert torch.equal(exact[0], compact[0]) and torch.equal(exact[1], compact[1])
    for one, other in zip(exact[2:], compact[2:], strict=True):
        # a code has an error of at most 1/506 of a step, and errors of many elements cancel
        assert torch.allclose(one, other, atol=0.02 * float(one.abs().max()))


def test_it_stands_in_for_rows_alone() -> None:
    x = torch.randn(4, 6)
    assert has_rows(x, torch.zeros(4, 1))
    assert not has_rows(x, torch.zeros(1, 6)) and not has_rows(x, torch.zeros(1, 1))
    assert not has_rows(torch.randn(2, 4, 6), torch.zeros(4, 1))
    found = run(learned_fake_quantize, x, False, -8, 7)
    assert torch.equal(found[0], run(CompactRows.apply, x, False, -8, 7)[0])
