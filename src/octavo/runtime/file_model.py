"""A file with its tokenizer as a model that reads texts, which evaluation and benchmarks ask for."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from octavo.errors import ModelError, OctavoWarning
from octavo.graph import batches
from octavo.graph.calling import CalledAsHuggingFace, known_to_pipelines
from octavo.graph.embedding import embed
from octavo.graph.encoder import Batch, Text
from octavo.runtime.backends.runner import Runner
from octavo.runtime.embedder import file_modules
from octavo.runtime.text_file import TextFile, open_text_file
from octavo.runtime.text_file import find_tokenizer_folder as find_tokenizer_folder
from octavo.sentence import SentenceModules

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_INPUTS = ("input_ids", "attention_mask")


@dataclass(frozen=True, kw_only=True, eq=False)
class FileModel(CalledAsHuggingFace):
    """An exported file with its tokenizer; it has all that evaluation asks of a model.

    Arguments:
        name: the file's name.
        head: as in `Encoder`; the file's metadata names it.
        config: the Hugging Face configuration beside the tokenizer, or one that knows the labels alone.
        max_length: tokens at which texts are cut.
        sentence: how a bare encoder makes one embedding of a text's tokens.
        folder: where the tokenizer came from.
    """

    name: str
    head: str
    config: Any
    tokenizer: PreTrainedTokenizerBase
    inputs: tuple[str, ...]
    output_names: tuple[str, ...]
    max_length: int
    sentence: SentenceModules
    run: Runner
    folder: Path

    def __post_init__(self) -> None:
        known_to_pipelines(type(self).__name__)

    @property
    def device(self) -> torch.device:
        """Where tensors lie: files take and give arrays of the CPU."""
        return torch.device("cpu")

    def to(self, device: str | torch.device) -> Self:
        """Return the model itself, which stays on the CPU; another device is a warning."""
        if torch.device(device).type != "cpu":
            warnings.warn(
                f"{self.name} is a file that runs on the CPU and is not moved to {device}; "
                'give device="cpu" to silence this',
                OctavoWarning,
                stacklevel=2,
            )
        return self

    def outputs(self, batch: Mapping[str, Tensor]) -> Batch:
        """Run a batch of token ids (batch, length); the results by name."""
        results = self.run({name: tensor.cpu().numpy() for name, tensor in batch.items()})
        return {name: torch.from_numpy(array) for name, array in results.items()}

    def batches(
        self, texts: Sequence[Text], batch_size: int = 32, max_length: int | None = None
    ) -> Iterator[tuple[list[int], Batch]]:
        """Yield batches of texts of similar length, each with the texts' positions."""
        length = min(max_length or self.max_length, self.max_length)
        return batches.from_texts(self.tokenizer, texts, self.inputs, batch_size, length, True)

    def embed(self, batch: Mapping[str, Tensor], outputs: Mapping[str, Tensor]) -> Tensor:
        """Return one embedding per text, (batch, width), from a bare encoder's hidden states."""
        if self.head != "encoder":
            raise ModelError(f"{self.name} has a {self.head} head; only a bare encoder makes embeddings")
        hidden = outputs[self.output_names[0]]
        mask = batch.get("attention_mask")
        return embed(hidden, torch.ones(hidden.shape[:2]) if mask is None else mask, self.sentence)


def open_model(
    file: str | Path,
    tokenizer: str | Path | None = None,
    *,
    backend: str | None = None,
    threads: int | None = None,
    run: Runner | None = None,
) -> FileModel:
    """Open an exported file as `octavo.open` does; `run` is the file as it was opened already."""
    opened = open_text_file(file, tokenizer, backend=backend, threads=threads, run=run)
    bare = opened.head == "encoder"
    return FileModel(
        name=opened.path.name,
        head=opened.head,
        config=_config(opened),
        tokenizer=opened.tokenizer,
        inputs=tuple(getattr(opened.run, "inputs", _INPUTS)),
        output_names=tuple(getattr(opened.run, "outputs", ())),
        max_length=opened.max_length,
        sentence=file_modules(opened.path, opened.folder, opened.metadata, None)
        if bare
        else SentenceModules(),
        run=opened.run,
        folder=opened.folder,
    )


def _config(opened: TextFile) -> Any:
    from transformers import AutoConfig, PretrainedConfig

    if (opened.folder / "config.json").is_file():
        return AutoConfig.from_pretrained(str(opened.folder))
    return PretrainedConfig(id2label=dict(enumerate(opened.labels))) if opened.labels else PretrainedConfig()


def open(
    file: str | Path,
    tokenizer: str | Path | None = None,
    *,
    backend: str | None = None,
    threads: int | None = None,
) -> FileModel:
    """Open an exported file as a model that reads texts, called as `octavo.load`'s models are.

    It is called as those of transformers are, too, and runs in their pipelines. A folder laid out as on the
    hub (`octavo export --layout hub`) is opened by its quantized file, the one for servers if there are two.

    Arguments:
        tokenizer: the folder (or the model, as `octavo.load` takes it) that has the tokenizer; it is looked
            for beside the file if left out.
        backend: what runs the file; the first that reads such files if left out.
        threads: how many cores to use; the backend's choice if left out.
    """
    return open_model(file, tokenizer, backend=backend, threads=threads)
