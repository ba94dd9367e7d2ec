"""Fidelity of artifacts: how far their outputs are from those of the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelError
from octavo.graph.encoder import Encoder, Text
from octavo.runtime.artifacts import Artifact
from octavo.runtime.embedder import pool


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Cosine to the first artifact (of embeddings, or of a text's outputs); how often predictions agree."""

    mean_cosine: float
    least_cosine: float
    agreement: float | None


def measure_quality(artifacts: Sequence[Artifact], texts: Sequence[Text]) -> list[Quality | None]:
    """Compare every artifact with the first on texts."""
    vectors, encoder = text_vectors(artifacts, texts)
    return [_compare(found, vectors[0], encoder.head) for found in vectors]


def text_vectors(artifacts: Sequence[Artifact], texts: Sequence[Text]) -> tuple[list[NDArray[Any]], Encoder]:
    """What each artifact makes of texts, a vector a text; the first with a tokenizer makes the tokens."""
    encoder = next(
        (a.encoder for a in artifacts if a.encoder is not None and a.encoder.tokenizer is not None), None
    )
    if encoder is None:
        raise ModelError(
            "none of the artifacts has a tokenizer; add the model that the files were exported from"
        )
    vectors: list[list[NDArray[Any]]] = [[] for _ in artifacts]
    for _, batch in encoder.batches(list(texts)):
        feed = {name: tensor.numpy() for name, tensor in batch.items()}
        for place, artifact in enumerate(artifacts):
            vectors[place].append(_vectors(artifact.run(feed), feed["attention_mask"], encoder))
    return [np.concatenate(parts) for parts in vectors], encoder


def cosines(found: NDArray[Any], reference: NDArray[Any]) -> NDArray[Any]:
    """Return the cosine of each row with that of the reference."""
    norms = np.linalg.norm(found, axis=-1) * np.linalg.norm(reference, axis=-1)
    return np.asarray((found * reference).sum(-1) / np.maximum(norms, np.finfo(np.float32).tiny))


def _vectors(outputs: dict[str, NDArray[Any]], mask: NDArray[Any], encoder: Encoder) -> NDArray[Any]:
    """One vector a text: its embedding, its logits, or the mean over its tokens."""
    first = next(iter(outputs.values()))
    if encoder.head == "encoder":
        return pool(first, mask, encoder.pooling)
    if first.ndim == 2 and first.shape[1] != mask.shape[1]:
        return first
    stacked = np.stack([o.reshape(*mask.shape, -1) for o in outputs.values()], axis=-1)
    kept = stacked * mask[..., None, None]
    return np.asarray(kept.sum(1).reshape(len(mask), -1) / mask.sum(1, keepdims=True))


def _compare(found: NDArray[Any], reference: NDArray[Any], head: str) -> Quality:
    cosine = cosines(found, reference)
    classifies = head == "sequence-classification" and found.shape[-1] > 1
    agreement = float((found.argmax(-1) == reference.argmax(-1)).mean()) if classifies else None
    return Quality(mean_cosine=float(cosine.mean()), least_cosine=float(cosine.min()), agreement=agreement)
