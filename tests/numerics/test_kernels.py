from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from octavo.numerics.kernels import fast_matmul, has_kernels


def test_kernels_are_for_a_gpu_with_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = SimpleNamespace(is_cuda=True)
    triton = ModuleType("triton")
    triton.__spec__ = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "triton", triton)
    assert has_kernels(on_gpu)  # type: ignore[arg-type]
    assert not has_kernels(torch.zeros(1))
    monkeypatch.setitem(sys.modules, "triton", None)
    assert not has_kernels(on_gpu)  # type: ignore[arg-type]


def test_matrix_products_are_as_before_afterwards() -> None:
    before = torch.get_float32_matmul_precision()
    with pytest.raises(ValueError), fast_matmul():
        assert torch.get_float32_matmul_precision() == "high"
        raise ValueError
    assert torch.get_float32_matmul_precision() == before
