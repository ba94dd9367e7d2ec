"""What kernels need to know; without them the same formulas run as operations of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from torch import Tensor


def has_kernels(tensor: Tensor) -> bool:
    """Return whether a tensor is on a GPU and Triton, which builds kernels for it, is there."""
    return tensor.is_cuda and find_spec("triton") is not None


@contextmanager
def fast_matmul() -> Iterator[None]:
    """Let float32 matrix products use TensorFloat-32 where the device has it."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
