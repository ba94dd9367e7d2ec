"""similarity/stsb: do cosines of embeddings rank sentence pairs as people do?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelError
from octavo.numerics.metrics import spearman
from octavo.progress import Progress, silent
from octavo.tasks.examples import Examples
from octavo.tasks.glue import GLUE, GlueTask
from octavo.tasks.model import Model, run
from octavo.tasks.texts import Text

# Which GLUE task the pairs and their scores are read from.
SIMILARITY: Mapping[str, GlueTask] = MappingProxyType({"similarity/stsb": GLUE["glue/stsb"]})


def similarity_metrics(
    model: Model,
    examples: Examples,
    *,
    batch_size: int = 32,
    max_length: int | None = None,
    progress: Progress = silent,
) -> dict[str, float]:
    """Return Spearman's correlation, times 100, of the pairs' cosines with their scores."""
    found = pair_cosines(
        model, examples.texts, batch_size=batch_size, max_length=max_length, progress=progress
    )
    return {"spearman": 100 * spearman(found, examples.labels)}


def pair_cosines(
    model: Model,
    pairs: Sequence[Text],
    *,
    batch_size: int = 32,
    max_length: int | None = None,
    progress: Progress = silent,
) -> NDArray[np.float64]:
    """Return the cosine (n,) of the two embeddings of every pair; a text that occurs twice runs once."""
    texts = list(dict.fromkeys(side for pair in pairs for side in pair))
    embeddings = embed_texts(model, texts, batch_size=batch_size, max_length=max_length, progress=progress)
    row = {text: index for index, text in enumerate(texts)}
    first = embeddings[[row[pair[0]] for pair in pairs]]
    second = embeddings[[row[pair[1]] for pair in pairs]]
    return cosine_similarity(first, second)


def cosine_similarity(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.float64]:
    """Return the cosine (n,) of the rows of two arrays (n, d); 0 where a row is zero."""
    x, y = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    return np.asarray((x * y).sum(axis=1) / np.where(norms == 0, 1.0, norms), dtype=np.float64)


def embed_texts(
    model: Model,
    texts: Sequence[Text],
    *,
    batch_size: int = 32,
    max_length: int | None = None,
    progress: Progress = silent,
) -> NDArray[np.float32]:
    """Return the embeddings (n, d) of texts in their order."""
    rows: dict[int, NDArray[np.float32]] = {}
    for indices, batch, outputs in run(model, texts, batch_size, progress, max_length):
        embedded = model.embed(batch, outputs).detach().float().cpu().numpy()
        if not np.isfinite(embedded).all():
            raise ModelError(f"Embeddings of {model.name} hold NaN or infinity; they cannot be compared.")
        rows.update(zip(indices, embedded, strict=True))
    return np.stack([rows[index] for index in range(len(texts))])
