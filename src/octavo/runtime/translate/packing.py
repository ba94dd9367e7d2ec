"""Tables of up to 4 bits as bytes that hold several numbers each, and how they are taken apart."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from octavo.graph.quantizers.quantizer import Quantizer
from octavo.runtime.translate.context import ONNX_TYPES, Translation


def is_packed(quantizer: Quantizer) -> bool:
    """Whether a weight is a table that is stored so."""
    return quantizer.site.role == "embedding_weight" and quantizer.spec.bits <= 4


def pack(t: Translation, quantizer: Quantizer, integers: Tensor) -> tuple[str, int]:
    """Return a table as bytes, and how many bits a number takes in them."""
    bits = 2 if quantizer.spec.bits == 2 else 4
    if integers.shape[1] % (8 // bits):
        bits = 8
    name = quantizer.site.name
    if (name, False) not in t.stored:
        t.stored[name, False] = t.graph.initializer(
            _pack_columns((integers - quantizer.low).cpu().numpy(), bits), name
        )
    return t.stored[name, False], bits


def unpack(t: Translation, packed: str, bits: int, low: int) -> str:
    """Turn bytes (…, n) into the integers in them, floats (…, n · 8 / bits)."""
    digits = _digits(t, t.once("Cast", packed, to=ONNX_TYPES[torch.float32]), bits)
    joined = t.once("Concat", *digits, axis=-1) if len(digits) > 1 else digits[0]
    return t.once("Add", joined, t.graph.constant(float(low), np.float32))


def _pack_columns(integers: NDArray[np.int32], bits: int) -> NDArray[np.uint8]:
    """Pack (rows, width) into bytes (rows, n), n = width · bits / 8: byte j has columns j, j + n, …"""
    parts = np.split(integers.astype(np.uint8), 8 // bits, axis=1)
    packed = np.zeros_like(parts[0])
    for digit, part in enumerate(parts):
        packed |= part << (digit * bits)
    return packed


def _digits(t: Translation, byte: str, bits: int) -> list[str]:
    """Return a byte's digits to base 2**bits, lowest first, by division: not every backend shifts bytes."""
    base = t.graph.constant(float(2**bits), np.float32)
    digits = []
    for _ in range(8 // bits - 1):
        quotient = t.graph.add("Floor", t.graph.add("Div", byte, base))
        digits.append(t.graph.add("Sub", byte, t.graph.add("Mul", quotient, base)))
        byte = quotient
    return [*digits, byte]
