from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from octavo.numerics.half_linear import half_linear


def parts(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 5, 64), (32, 64), (32,))
    return tuple(torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes)  # type: ignore[return-value]


def test_without_gradients_it_is_the_linear_layer_itself() -> None:
    x, weight, bias = parts()
    with torch.no_grad():
        assert torch.equal(half_linear(x, weight, bias), functional.linear(x, weight, bias))
        assert torch.equal(half_linear(x, weight), functional.linear(x, weight))
    x, weight, bias = parts(torch.float64)
    assert torch.equal(half_linear(x, weight, bias), functional.linear(x, weight, bias))


@pytest.mark.parametrize("biased", [True, False])
def test_values_and_gradients_are_those_in_float_to_the_rounding_of_bfloat16(biased: bool) -> None:
    found, wanted = [], []
    for function, results in ((half_linear, found), (functional.linear, wanted)):
        x, weight, bias = parts()
        y = function(x, weight, bias if biased else None)
        (y * torch.arange(y.numel()).view_as(y).sin()).sum().backward()
        results += [y.detach(), x.grad, weight.grad, *([bias.grad] if biased else [])]
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape and one.dtype == torch.float32
        assert float((one - other).norm() / other.norm()) < 2**-8


def test_only_what_takes_gradients_gets_one() -> None:
    x, weight, bias = parts()
    half_linear(x.detach(), weight, bias).sum().backward()
    assert x.grad is None and weight.grad is not None and bias.grad is not None
