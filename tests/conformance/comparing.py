"""Comparing outputs: every token that is not padding, by the largest difference or by direction."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from tests.conformance.outcome import Wrong
from tests.conformance.subjects import Batch

EXACT = 2e-5
"""Of the largest output; what float arithmetic in another order leaves."""
AT_16_BITS = 5e-3
"""T5 does not scale its attention scores, which makes more of small differences."""

# One number that rounds the other way moves all behind it by a step of 8 bits.
_COSINE = 0.99
_LEAST_WIDTH = 8  # two small logits have hardly a direction
_MASKED = 1e4  # larger numbers are no results


def kept(values: Tensor, batch: Batch) -> Tensor:
    """Return what counts: no token of padding."""
    mask = batch["attention_mask"].bool()
    return values[mask] if values.shape[: mask.dim()] == mask.shape else values


def compare(
    name: str, batch: Batch, found: Mapping[str, Tensor], expected: Mapping[str, Tensor], tolerance: float
) -> None:
    """Refuse outputs that differ by more than a share of the largest."""
    for output, values in expected.items():
        right, given = kept(values, batch), kept(found[output], batch)
        difference, size = (given - right).abs(), right.abs()
        # what a head masks with -1e6 allows nothing to the other logits
        ordinary = size[size < _MASKED].max() if bool((size < _MASKED).any()) else size.min()
        allowed = tolerance * torch.where(size < _MASKED, ordinary.clamp(min=1.0), size)
        worst = int((difference / allowed).nan_to_num(nan=torch.inf).argmax())
        if not bool((difference <= allowed).all()):
            off, most = float(difference.flatten()[worst]), float(allowed.flatten()[worst])
            raise Wrong(f"{name}: {output} differs by {off:.2g}, more than {most:.2g}")


def compare_directions(
    name: str, batch: Batch, found: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    """Refuse outputs that point elsewhere: hidden states token by token, a few logits all together."""
    for output, values in expected.items():
        right, given = kept(values, batch).double(), kept(found[output], batch).double()
        if right.shape[-1] < _LEAST_WIDTH:
            right, given = right.flatten(), given.flatten()
        cosine = float(np.min(torch.cosine_similarity(given, right, dim=-1).numpy()))
        if not cosine >= _COSINE:
            raise Wrong(f"{name}: cosine of {output} to the simulation {cosine:.4f}, less than {_COSINE}")
