"""How a site is quantized, in plain data: bits, granularity and groups."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from octavo.graph.quantizers.quantizer import Quantizer


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """How one site is quantized.

    Arguments:
        granularity: its name in recipes, such as `per-group`.
        groups: how many ranges the site has; None where every tensor brings its own (per token).
        permuted: whether channels were sorted into the groups by their range.
        sizes: how many channels each group has; None where channels are not in groups.
        format: integer, or a floating-point format of 8 bits.
    """

    bits: int
    granularity: str
    groups: int | None
    permuted: bool
    sizes: tuple[int, ...] | None = None
    format: str = "integer"


def describe_quantizer(quantizer: Quantizer) -> Quantization:
    """Return how a quantizer treats its site."""
    granularity, index = quantizer.spec.granularity, quantizer.index
    return Quantization(
        bits=quantizer.spec.bits,
        granularity=granularity.variant_name,
        groups=int(index.max()) + 1 if index.numel() else None,
        permuted=granularity.permutes,
        sizes=tuple(torch.bincount(index).tolist()) if granularity.has_groups else None,
        format=quantizer.spec.format.variant_name,
    )
