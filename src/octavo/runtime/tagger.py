"""Entities in texts from an exported file: what `Embedder` is for embeddings."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import OctavoWarning
from octavo.runtime.classifier import softmax
from octavo.runtime.text_file import TextModel

_OUTSIDE = "O"


@dataclass(frozen=True, kw_only=True)
class Entity:
    """A stretch of a text, text[start:end], with its label and the mean score of its tokens."""

    label: str
    text: str
    start: int
    end: int
    score: float


class Tagger(TextModel):
    """A token classifier that runs in integers; it needs no torch.

    Neighbouring tokens of one label are one entity, begun anew by "B-" and continued by "I-", as the pipeline
    of transformers groups them with `aggregation_strategy="simple"`; the label "O" marks what is no entity.

    >>> Tagger("ner-int8.onnx").tag("Ada Lovelace lived in London.")
    [Entity(label='PER', text='Ada Lovelace', start=0, end=12, score=0.99), ...]
    """

    head, purpose, places = "token-classification", "finds entities", True

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the tokens' classes."""
        return self.file.labels

    def tag(self, texts: str | Sequence[str], batch_size: int = 32) -> Any:
        """Return the entities of every text, a list each; one list for one text."""
        if isinstance(texts, str):
            return self.tag([texts], batch_size)[0]
        found: dict[int, list[Entity]] = {}
        places = {"return_offsets_mapping": True, "return_special_tokens_mask": True}
        for chosen, batch in self.file.batches(texts, batch_size, **places):
            self._warn_of_cut_texts(batch)
            offsets, special = batch.pop("offset_mapping"), batch.pop("special_tokens_mask")
            scores = softmax(self.file.run(batch)["logits"])
            for row, index in enumerate(chosen):
                kept = np.flatnonzero(special[row] == 0)
                found[index] = list(self._entities(texts[index], offsets[row][kept], scores[row][kept]))
        return [found[index] for index in range(len(texts))]

    def _warn_of_cut_texts(self, batch: Any) -> None:
        cut = sum(bool(encoding.overflowing) for encoding in batch.encodings)
        if cut:
            warnings.warn(
                f"{cut} texts are longer than {self.file.max_length} tokens; what follows is not tagged",
                OctavoWarning,
                stacklevel=3,
            )

    def _entities(self, text: str, offsets: NDArray[Any], scores: NDArray[Any]) -> Iterator[Entity]:
        named = [_parts(self.labels[int(row.argmax())]) for row in scores]
        begins = [i for i, (begin, tag) in enumerate(named) if begin or i == 0 or tag != named[i - 1][1]]
        for first, end in zip(begins, [*begins[1:], len(named)], strict=True):
            tag = named[first][1]
            if tag != _OUTSIDE:
                start, stop = int(offsets[first][0]), int(offsets[end - 1][1])
                score = float(scores[first:end].max(-1).mean())
                yield Entity(label=tag, text=text[start:stop], start=start, end=stop, score=score)


def _parts(label: str) -> tuple[bool, str]:
    """Return whether a label begins an entity, and the entity's own label."""
    return label.startswith("B-"), label[2:] if label.startswith(("B-", "I-")) else label
