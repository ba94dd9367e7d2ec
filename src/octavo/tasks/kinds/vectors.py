"""How vectors are stored in an index, and searched: in float, in 8 bits, or as one bit a dimension."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Similarities = Callable[[Vectors], NDArray[Any]]
"""From queries (q, d) to their similarity to every document, (q, documents); higher is nearer."""

_ELEMENTS = 2**23
"""Similarities that are held at once."""
_STEPS = 255


def float_index(documents: Vectors) -> Similarities:
    """Return cosines of normalized vectors as they are."""
    return lambda queries: queries @ documents.T


def int8_index(documents: Vectors) -> Similarities:
    """Return cosines with documents in 8 bits: 255 steps from a dimension's least to its largest value.

    Queries stay float, as in the scalar quantizers of vector indexes.
    """
    low = documents.min(axis=0)
    step = np.maximum((documents.max(axis=0) - low) / _STEPS, np.float32(1e-12))
    codes = np.clip(np.rint((documents - low) / step), 0, _STEPS).astype(np.uint8)
    # q · (low + step · code): one product in float for the offset, which is the same for all documents
    return lambda queries: (queries * step) @ codes.astype(np.float32).T + queries @ low[:, None]


def binary_index(documents: Vectors) -> Similarities:
    """Return the share of equal signs, queries and documents as one bit a dimension."""
    signs = _signs(documents)
    return lambda queries: (1 + _signs(queries) @ signs.T / documents.shape[1]) / 2


INDEXES: Mapping[str, Callable[[Vectors], Similarities]] = MappingProxyType(
    {"float": float_index, "int8": int8_index, "binary": binary_index}
)


def nearest_documents(queries: Vectors, similarities: Similarities, k: int) -> NDArray[np.int64]:
    """Return the k nearest documents of every query, (q, k), best first; of equals the first."""
    rows = max(1, _ELEMENTS // len(similarities(queries[:1])[0]))
    found = [
        np.argsort(-similarities(queries[start : start + rows]), axis=1, kind="stable")[:, :k]
        for start in range(0, len(queries), rows)
    ]
    return np.concatenate(found)


def _signs(vectors: Vectors) -> Vectors:
    return np.where(vectors > 0, np.float32(1), np.float32(-1))
