"""Integers at their real bit-width: a little-endian stream of bits in bytes.

Value i of b <= 8 bits takes the bits i*b to (i+1)*b - 1 of the stream; n values take ceil(n * b / 8) bytes.
Wider values take two bytes each. Negative values are stored in two's complement, the bits left over are 0.
"""

from __future__ import annotations

from math import lcm
from typing import Any

import numpy as np
import torch
from torch import Tensor

from octavo.errors import SpecError
from octavo.numerics.affine import check_bits

CHUNK = 2**20  # values packed at a time, a multiple of the 8 that any block holds


def pack(q: Tensor | np.ndarray[Any, Any], bits: int) -> Tensor:
    """Return the integers `q`, of any shape, as a flat uint8 tensor of `packed_size` bytes."""
    q = torch.as_tensor(q).reshape(-1)
    _check_values(q, bits)
    if len(q) == 0:
        return torch.empty(0, dtype=torch.uint8, device=q.device)
    return torch.cat([_pack(part, _width(bits)) for part in torch.split(q, CHUNK)])


def unpack(packed: Tensor, bits: int, count: int, signed: bool) -> Tensor:
    """Return the integers that were packed, (count,) int32; `signed` reads them as two's complement."""
    if len(packed) != packed_size(count, bits):
        raise SpecError(
            f"{len(packed)} bytes were given for {count} values of {bits} bits, "
            f"which take {packed_size(count, bits)}; the data is cut short or of another bit-width."
        )
    width = _width(bits)
    q = torch.empty(count, dtype=torch.int32, device=packed.device)
    for number, part in enumerate(torch.split(packed, CHUNK * width // 8) if count else ()):
        target = q[number * CHUNK : (number + 1) * CHUNK]
        target.copy_(_unpack(part, width)[: len(target)])
    if signed:
        q.sub_((q >> width - 1) << width)
    return q


def packed_size(count: int, bits: int) -> int:
    """Return the bytes that `count` values of `bits` bits take."""
    return -(-count * _width(bits) // 8)


def _width(bits: int) -> int:
    """Return the bits that a value takes in the stream."""
    check_bits(bits)
    return bits if bits <= 8 else 16


def _block(width: int) -> tuple[int, int, torch.dtype]:
    """Return how many values fill how many bytes exactly (8 of 3 bits fill 3), and a dtype for them all."""
    size = lcm(width, 8)
    return size // width, size // 8, torch.uint8 if size == 8 else torch.int64


def _pack(q: Tensor, width: int) -> Tensor:
    values, size, word_type = _block(width)
    length = -(-len(q) * width // 8)
    q = (q.to(torch.int32) & (1 << width) - 1).to(word_type)
    blocks = torch.nn.functional.pad(q, (0, -len(q) % values)).view(-1, values)
    word = blocks[:, 0].clone()
    for place in range(1, values):
        word |= blocks[:, place] << place * width
    if size == 1:
        return word
    return torch.stack([(word >> 8 * byte & 255).byte() for byte in range(size)], dim=1).view(-1)[:length]


def _unpack(packed: Tensor, width: int) -> Tensor:
    values, size, word_type = _block(width)
    blocks = torch.nn.functional.pad(packed.to(word_type), (0, -len(packed) % size)).view(-1, size)
    word = blocks[:, 0].clone()
    for byte in range(1, size):
        word |= blocks[:, byte] << 8 * byte
    mask = (1 << width) - 1
    return torch.stack([word >> place * width & mask for place in range(values)], dim=1).view(-1)


def _check_values(q: Tensor, bits: int) -> None:
    """Refuse what is not an integer or does not fit, signed or unsigned, into `bits` bits."""
    check_bits(bits)
    if q.is_floating_point() or q.is_complex():
        raise SpecError(
            f"values of dtype {q.dtype} were given to pack; round them to an integer dtype first."
        )
    smallest, largest = (int(q.min()), int(q.max())) if len(q) else (0, 0)
    if smallest < -(2 ** (bits - 1)) or largest >= 2**bits or (smallest < 0 and largest >= 2 ** (bits - 1)):
        raise SpecError(
            f"values from {smallest} to {largest} do not fit {bits} bits; clip them to the grid first."
        )
