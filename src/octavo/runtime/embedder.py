"""Embeddings of texts from an exported file: the `encode` that users of sentence encoders know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import DataError, ModelError, did_you_mean
from octavo.runtime.artifacts import open_onnx
from octavo.runtime.backends import DEFAULT
from octavo.sentence import POOLINGS, Normalize, Pooling, SentenceModules, in_folder, read_modules

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_LENGTH_UNKNOWN = 512


class Embedder:
    """A sentence encoder that runs in integers; it needs no torch.

    Pooling, dense layers, normalization and length are those that the file's own metadata and
    sentence-transformers' files in the tokenizer's folder state.

    >>> embedder = Embedder("minilm-int8.onnx", tokenizer="minilm-int8")
    >>> embedder.encode(["a text", "another"]).shape
    (2, 384)
    """

    def __init__(
        self,
        file: str | Path,
        tokenizer: str | Path,
        *,
        backend: str = DEFAULT,
        pooling: Pooling | None = None,
        max_length: int | None = None,
        threads: int | None = None,
    ) -> None:
        """Open a file and the tokenizer of a folder, such as the one the file was exported from.

        Arguments:
            pooling, max_length: other than those that the file states.
            threads: how many cores to use; the runtime's choice if left out.
        """
        from transformers import AutoTokenizer

        self.run = open_onnx(file, backend, threads)
        try:
            self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(tokenizer))
        except (OSError, ValueError) as error:
            raise ModelError(
                f"{tokenizer} has no tokenizer that can be loaded; give the saved model's folder"
            ) from error
        metadata = file_metadata(Path(file), self.run)
        self.modules = file_modules(Path(file), Path(tokenizer), metadata, pooling)
        self.max_length = max_length or file_length(metadata, self.modules, self.tokenizer)

    @property
    def pooling(self) -> Pooling:
        """How one vector is made of a text's tokens."""
        return self.modules.pooling

    def encode(self, texts: str | Sequence[str], batch_size: int = 32) -> NDArray[np.float32]:
        """Return embeddings, (texts, width); one vector for one text."""
        if isinstance(texts, str):
            single: NDArray[np.float32] = self.encode([texts], batch_size)[0]
            return single
        if not texts:
            raise DataError("no texts were given; give a list with at least one text")
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        vectors: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            vectors |= dict(zip(chosen, self._embed([texts[index] for index in chosen]), strict=True))
        return np.stack([vectors[index] for index in range(len(texts))])

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        batch: Any = self.tokenizer(
            texts, padding=True, truncation=True, max_length=self.max_length, return_tensors="np"
        )
        return self.modules.embed(next(iter(self.run(batch).values())), batch["attention_mask"])


def file_metadata(file: Path, run: object) -> Mapping[str, str]:
    """What a file says of itself; OpenVINO does not hand it out, so an ONNX file is asked."""
    told: Mapping[str, str] = getattr(run, "metadata", {})
    if told or file.suffix != ".onnx" or find_spec("onnx") is None:
        return told
    import onnx

    return {entry.key: entry.value for entry in onnx.load(str(file), load_external_data=False).metadata_props}


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


def file_length(metadata: Mapping[str, str], modules: SentenceModules, tokenizer: Any) -> int:
    stated = metadata.get("max_length", "")
    known = int(getattr(tokenizer, "model_max_length", 0) or 0)
    fallback = known if 1 < known < 10**6 else _LENGTH_UNKNOWN
    return int(stated) if stated.isdecimal() and int(stated) > 0 else modules.max_length or fallback


def pool(hidden: NDArray[Any], mask: NDArray[Any], pooling: Pooling) -> NDArray[np.float32]:
    """One L2-normalised vector a text, (batch, width), from hidden states (batch, length, width)."""
    return SentenceModules(pooling=pooling).embed(hidden, mask)
