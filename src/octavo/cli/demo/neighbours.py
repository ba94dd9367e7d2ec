"""Examples that people can judge: which text a model takes for the nearest to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from octavo.graph import Encoder


@dataclass(frozen=True, kw_only=True)
class Example:
    """A text, and by model the text that it takes for the nearest."""

    text: str
    nearest: dict[str, str]


def similarities(model: Encoder, texts: Sequence[str]) -> NDArray[Any]:
    """Return cosines (n, n) of the embeddings of all pairs of texts; -1 for a text with itself."""
    import numpy as np

    from octavo.tasks import embed_texts

    embeddings = embed_texts(model, texts)
    cosines = embeddings @ embeddings.T
    np.fill_diagonal(cosines, -1.0)
    return cosines


def find_example(
    texts: Sequence[str], cosines: Mapping[str, NDArray[Any]], reference: str, broken: str
) -> Example | None:
    """Find the clearest case where `broken` alone has a nearest text other than `reference` has, or None.

    Clear is where the right text is near (squared, since it is the near ones that people recognise), and the
    one that was taken instead is far. It is an illustration, picked for clarity, and measures nothing.
    """
    rows = range(len(texts))
    nearest = {name: matrix.argmax(axis=1) for name, matrix in cosines.items()}
    right = cosines[reference][rows, nearest[reference]]
    wrong = cosines[reference][rows, nearest[broken]]
    clarity = right**2 * (right - wrong)
    for name in nearest:
        if name != broken:
            clarity[nearest[name] != nearest[reference]] = 0.0
    row = int(clarity.argmax())
    if clarity[row] <= 0:
        return None
    return Example(text=texts[row], nearest={name: texts[indices[row]] for name, indices in nearest.items()})
