from __future__ import annotations

import pytest
import torch

from octavo.numerics import affine_from_range, fake_quantize
from octavo.numerics import blocks as blocks_module
from octavo.numerics.blocks import fake_quantize_in_blocks


@pytest.mark.parametrize("inplace", [False, True], ids=["copy", "inplace"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["per tensor", "per channel"])
@pytest.mark.parametrize("shape", [(7,), (3, 5, 7), (11, 13, 7)], ids=str)
def test_blocks_give_the_bits_of_the_whole(
    shape: tuple[int, ...], per_channel: bool, inplace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK", 16)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 3
    low, high = (
        (x.amin(dim=tuple(range(x.dim() - 1))), x.amax(dim=tuple(range(x.dim() - 1))))
        if per_channel
        else x.aminmax()
    )
    grid = affine_from_range(low / 2, high / 2, 8, symmetric=False)
    expected = fake_quantize(x, grid.scale, grid.zero_point, grid.low, grid.high)
    given = x.clone()
    found = fake_quantize_in_blocks(given, grid.scale, grid.zero_point, grid.low, grid.high, inplace)
    assert torch.equal(found, expected)
    assert (found is given) == inplace
    assert torch.equal(given, expected if inplace else x)


def test_a_zero_point_may_be_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK", 16)
    x = torch.randn(9, 7, generator=torch.Generator().manual_seed(0))
    expected = fake_quantize(x, torch.tensor([0.01]), torch.tensor([100]), 0, 255)
    assert torch.equal(fake_quantize_in_blocks(x, torch.tensor([0.01]), 100, 0, 255), expected)


@pytest.mark.parametrize(
    ("shape", "scale_shape"), [((4, 6, 5), (6, 1)), ((4, 6, 5), (4, 6, 1)), ((6, 5), (6, 1))], ids=str
)
def test_other_layouts_are_passed_on(shape: tuple[int, ...], scale_shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    scale, zero_point = torch.rand(scale_shape) * 0.01 + 0.01, torch.full(scale_shape, 90)
    expected = fake_quantize(x, scale, zero_point, 0, 255)
    assert torch.equal(fake_quantize_in_blocks(x, scale, zero_point, 0, 255), expected)


def test_transposed_and_half_precision_tensors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "BLOCK", 16)
    x = torch.randn(9, 7, generator=torch.Generator().manual_seed(0))
    for given in (x.t(), x.half(), x.double()):
        expected = fake_quantize(given, torch.tensor(0.02), torch.tensor(100), 0, 255)
        assert torch.equal(fake_quantize_in_blocks(given, torch.tensor(0.02), 100, 0, 255), expected)
