"""Embeddings of texts from an exported file: the `encode` that users of sentence encoders know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelError, did_you_mean
from octavo.runtime.text_file import open_text_file
from octavo.sentence import POOLINGS, Normalize, Pooling, SentenceModules, in_folder, read_modules


class Embedder:
    """A sentence encoder that runs in integers; it needs no torch.

    Pooling, dense layers, normalization and length are those that the file's own metadata and
    sentence-transformers' files in the tokenizer's folder state. The tokenizer is looked for beside the file.

    >>> embedder = Embedder("minilm-int8.onnx", tokenizer="minilm-int8")
    >>> embedder.encode(["a text", "another"]).shape
    (2, 384)
    """

    def __init__(
        self,
        file: str | Path,
        tokenizer: str | Path | None = None,
        *,
        backend: str | None = None,
        pooling: Pooling | None = None,
        max_length: int | None = None,
        threads: int | None = None,
    ) -> None:
        """Open a file and the tokenizer of a folder, such as the one the file was exported from.

        Arguments:
            pooling, max_length: other than those that the file states.
            threads: how many cores to use; the runtime's choice if left out.
        """
        self.file = open_text_file(file, tokenizer, backend=backend, max_length=max_length, threads=threads)
        self.run, self.tokenizer, self.max_length = self.file.run, self.file.tokenizer, self.file.max_length
        self.modules = file_modules(self.file.path, self.file.folder, self.file.metadata, pooling)

    @property
    def pooling(self) -> Pooling:
        """How one vector is made of a text's tokens."""
        return self.modules.pooling

    def encode(self, texts: str | Sequence[str], batch_size: int = 32) -> NDArray[np.float32]:
        """Return embeddings, (texts, width); one vector for one text."""
        if isinstance(texts, str):
            single: NDArray[np.float32] = self.encode([texts], batch_size)[0]
            return single
        vectors: dict[int, NDArray[np.float32]] = {}
        for chosen, batch in self.file.batches(texts, batch_size):
            hidden = next(iter(self.run(batch).values()))
            vectors |= dict(zip(chosen, self.modules.embed(hidden, batch["attention_mask"]), strict=True))
        return np.stack([vectors[index] for index in range(len(texts))])


def file_modules(
    file: Path, folder: Path, metadata: Mapping[str, str], pooling: Pooling | None
) -> SentenceModules:
    """What to do with the hidden states: by the file's metadata, with the dense layers of the folder."""
    head = metadata.get("head", "encoder")
    if head != "encoder":
        raise ModelError(f"{file} has a {head} head; only a bare encoder makes embeddings")
    modules = read_modules(in_folder(folder), str(folder))
    if "modules" in metadata and metadata["modules"] != ",".join(modules.step_names):
        stated = SentenceModules(steps=_plain_steps(metadata["modules"]))
        if ",".join(stated.step_names) != metadata["modules"]:
            raise ModelError(
                f"{file} belongs to a model with the modules {metadata['modules']} after its pooling, which "
                f"{folder} does not have; give the folder of the model it was exported from"
            )
        modules = replace(modules, steps=stated.steps)
    chosen = pooling or metadata.get("pooling") or modules.pooling
    if chosen not in POOLINGS:
        hint = did_you_mean(chosen, POOLINGS) or f"; use {', '.join(POOLINGS)}"
        raise ModelError(f"unknown pooling {chosen!r}{hint}")
    return replace(modules, pooling=chosen)


def _plain_steps(names: str) -> tuple[Normalize, ...]:
    """The steps that need no weights, to be had without a folder."""
    return tuple(Normalize() for name in names.split(",") if name == "Normalize")


def pool(hidden: NDArray[Any], mask: NDArray[Any], pooling: Pooling) -> NDArray[np.float32]:
    """One L2-normalised vector a text, (batch, width), from hidden states (batch, length, width)."""
    return SentenceModules(pooling=pooling).embed(hidden, mask)
