"""A file with its tokenizer as a model that reads texts, which evaluation and benchmarks ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from octavo.errors import ModelError
from octavo.graph import batches
from octavo.graph.capture.source import locate
from octavo.graph.embedding import embed
from octavo.graph.encoder import Batch, Text
from octavo.runtime.backends import DEFAULT, find_backend
from octavo.runtime.backends.runner import Runner
from octavo.runtime.embedder import file_length, file_metadata, file_modules
from octavo.sentence import SentenceModules

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model")
_HEADS = {"last_hidden_state": "encoder", "start_logits": "question-answering"}
_INPUTS = ("input_ids", "attention_mask")


@dataclass(frozen=True, kw_only=True, eq=False)
class FileModel:
    """An exported file with its tokenizer; it has all that evaluation asks of a model.

    Arguments:
        name: the file's name.
        head: as in `Encoder`; the file's metadata names it.
        config: the Hugging Face configuration beside the tokenizer, or one that knows the labels alone.
        max_length: tokens at which texts are cut.
        sentence: how a bare encoder makes one embedding of a text's tokens.
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

    @property
    def device(self) -> torch.device:
        """Where tensors lie: files take and give arrays of the CPU."""
        return torch.device("cpu")

    def __call__(self, batch: Mapping[str, Tensor]) -> Batch:
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
    backend: str = DEFAULT,
    threads: int | None = None,
    run: Runner | None = None,
) -> FileModel:
    """Open an exported file as a model that reads texts.

    Arguments:
        tokenizer: the folder (or the model, as `octavo.load` takes it) that has the tokenizer; it is looked
            for beside the file if left out.
        run: the file as it was opened already.
    """
    path = Path(file)
    folder = tokenizer_folder(path, tokenizer)
    opened = run if run is not None else find_backend(backend).open(path, threads)
    metadata = file_metadata(path, opened)
    outputs = tuple(getattr(opened, "outputs", ()))
    head = metadata.get("head") or next((_HEADS[name] for name in outputs if name in _HEADS), "")
    if not head:
        raise ModelError(
            f"{path} does not say which head it has, and its outputs ({', '.join(outputs)}) do not tell; "
            "give a file that Octavo exported"
        )
    loaded = _tokenizer(folder)
    modules = file_modules(path, folder, metadata, None) if head == "encoder" else SentenceModules()
    return FileModel(
        name=path.name,
        head=head,
        config=_config(folder, metadata),
        tokenizer=loaded,
        inputs=tuple(getattr(opened, "inputs", _INPUTS)),
        output_names=outputs,
        max_length=file_length(metadata, modules, loaded),
        sentence=modules,
        run=opened,
    )


def tokenizer_folder(file: Path, given: str | Path | None = None) -> Path:
    """Return the folder of a file's tokenizer: the one given, or one of those where it usually lies."""
    if given is not None:
        return Path(locate(str(given)))
    found = find_tokenizer_folder(file)
    if found is None:
        raise ModelError(
            f"{file} has no tokenizer beside it, nor in {file.with_suffix('').name}/; copy the tokenizer's "
            "files there, or name the model it was exported from (--tokenizer DIR on the command line)"
        )
    return found


def find_tokenizer_folder(file: Path) -> Path | None:
    """Return the file's own folder, one of the file's name beside it, or (as on the hub) the one above."""
    places = [file.parent, file.with_suffix("")]
    places += [file.parent.parent] if file.absolute().parent.name in ("onnx", "openvino") else []
    return next(
        (place for place in places if any((place / name).is_file() for name in _TOKENIZER_FILES)), None
    )


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(folder))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{folder} has no tokenizer that can be loaded; give the saved model's folder"
        ) from error
    return loaded


def _config(folder: Path, metadata: Mapping[str, str]) -> Any:
    from transformers import AutoConfig, PretrainedConfig

    if (folder / "config.json").is_file():
        return AutoConfig.from_pretrained(str(folder))
    labels = json.loads(metadata.get("labels", "[]"))
    return PretrainedConfig(id2label=dict(enumerate(labels))) if labels else PretrainedConfig()
