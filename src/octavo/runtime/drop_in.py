"""Octavo's models as those of sentence-transformers: the objects that its users know, with our arithmetic."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.errors import MissingExtraError, ModelError, OctavoWarning
from octavo.graph.encoder import Encoder
from octavo.methods.loading import load
from octavo.runtime.artifacts import is_file
from octavo.runtime.file_model import FileModel, open_model
from octavo.sentence import ACTIVATIONS, SETTINGS, Dense, SentenceModules, in_folder

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from torch import nn

_WEIGHTS = ("octavo.json", "model.safetensors", "model.safetensors.index.json")


def sentence_transformer(
    model: str | Path | Encoder | FileModel,
    *,
    tokenizer: str | Path | None = None,
    backend: str | None = None,
    threads: int | None = None,
) -> SentenceTransformer:
    """Return a `SentenceTransformer` whose transformer is a model of Octavo.

    Pooling, dense layers and normalization are modules of sentence-transformers, made from the model's own
    files; so are prompts and the similarity function. `encode`, `similarity`, prompts and worker processes
    work as always. Nothing runs code that comes with a model.

    Arguments:
        model: an exported file or a folder laid out as on the hub (integers), a folder that Octavo saved
            (simulated), any other model that `octavo.load` takes (float), or one that is loaded already.
        tokenizer, backend, threads: as in `octavo.open`, for exported files.
    """
    module, settings = _input(model, "encoder", tokenizer, backend, threads)
    from sentence_transformers import SentenceTransformer

    sentence = module.model.sentence
    return SentenceTransformer(
        modules=[module, *_modules(sentence, module.get_embedding_dimension())],
        device="cpu",
        prompts=settings.get("prompts"),
        default_prompt_name=settings.get("default_prompt_name"),
        similarity_fn_name=settings.get("similarity_fn_name"),
        local_files_only=True,
    )


def cross_encoder(
    model: str | Path | Encoder | FileModel,
    *,
    tokenizer: str | Path | None = None,
    backend: str | None = None,
    threads: int | None = None,
) -> CrossEncoder:
    """Return a `CrossEncoder`, for rerankers and classifiers of pairs, that is a model of Octavo.

    The activation function is that of the model's files, as sentence-transformers reads them.

    Arguments:
        model, tokenizer, backend, threads: as in `octavo.sentence_transformer`.
    """
    module, settings = _input(model, "sequence-classification", tokenizer, backend, threads)
    from octavo.runtime.sentence_input import OctavoCrossEncoder

    made: CrossEncoder = OctavoCrossEncoder(
        modules=[module],
        device="cpu",
        prompts=settings.get("prompts"),
        default_prompt_name=settings.get("default_prompt_name"),
        activation_fn=_activation(settings.get("activation_fn")),
        local_files_only=True,
    )
    return made


def open_any(
    model: str, tokenizer: str | None = None, backend: str | None = None, threads: int | None = None
) -> Encoder | FileModel:
    """Open an exported file or a folder that holds one; load any other model."""
    path = Path(model)
    holds_file = path.is_dir() and not any((path / name).is_file() for name in _WEIGHTS)
    with warnings.catch_warnings():
        # sentence-transformers puts the prompt before every text, which Octavo alone does not
        warnings.filterwarnings("ignore", ".*puts the prompt.*", OctavoWarning)
        if is_file(model) or (holds_file and (path / "onnx").is_dir()):
            return open_model(path, tokenizer, backend=backend, threads=threads)
        given = {"tokenizer": tokenizer, "backend": backend, "threads": threads}
        unread = [name for name, value in given.items() if value is not None]
        if unread:
            raise ModelError(f"{model} is no exported file, so {', '.join(unread)} mean nothing; drop them")
        return load(model)


def _input(
    model: Any, head: str, tokenizer: str | Path | None, backend: str | None, threads: int | None
) -> tuple[Any, Mapping[str, Any]]:
    """Return the first module, and what `config_sentence_transformers.json` says."""
    if find_spec("sentence_transformers") is None:
        raise MissingExtraError("sentence-transformers", "A model of sentence-transformers")
    opened: dict[str, Any] | None = None
    if isinstance(model, str | Path):
        given = None if tokenizer is None else str(tokenizer)
        opened = {"model": str(model), "tokenizer": given, "backend": backend, "threads": threads}
        model = open_any(**opened)
    if model.head != head:
        other = "octavo.cross_encoder" if head == "encoder" else "octavo.sentence_transformer"
        raise ModelError(f"{model.name} has the head {model.head}, not {head}; is it one for {other}?")
    if model.tokenizer is None:
        raise ModelError(f"{model.name} has no tokenizer files; add them to its folder")
    from octavo.runtime.sentence_input import OctavoInput

    return OctavoInput(model, opened), _settings(model)


def _settings(model: Encoder | FileModel) -> Mapping[str, Any]:
    content = model.sentence.files.get(SETTINGS)
    if content is None and isinstance(model, FileModel):
        file = in_folder(model.folder)(SETTINGS)
        content = None if file is None else file.read_bytes()
    return json.loads(content) if content else {}


def _modules(sentence: SentenceModules, width: int) -> list[nn.Module]:
    """Return pooling and what follows it as modules of sentence-transformers."""
    import torch
    from sentence_transformers.base.modules import Dense as DenseModule
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.sentence_transformer.modules import Pooling

    made: list[nn.Module] = [
        Pooling(width, pooling_mode=sentence.pooling, include_prompt=_pools_prompt(sentence))
    ]
    for step in sentence.steps:
        if isinstance(step, Dense):
            made.append(
                DenseModule(
                    step.weight.shape[1],
                    step.weight.shape[0],
                    bias=step.bias is not None,
                    activation_function=getattr(torch.nn, step.activation)(),
                    init_weight=torch.from_numpy(step.weight),
                    init_bias=None if step.bias is None else torch.from_numpy(step.bias),
                )
            )
        else:
            made.append(Normalize())
    return made


def _pools_prompt(sentence: SentenceModules) -> bool:
    """Whether the tokens of a prompt count in pooling; a few models leave them out."""
    files = [json.loads(c) for name, c in sentence.files.items() if name.endswith("_Pooling/config.json")]
    return all(file.get("include_prompt", True) for file in files)


def _activation(named: str | None) -> Any:
    """Return torch's module by the path that the files give; None leaves it to sentence-transformers."""
    if named is None:
        return None
    import torch

    module, _, name = named.rpartition(".")
    if not module.startswith("torch.nn") or name not in ACTIVATIONS:
        raise ModelError(
            f"the activation function {named} of {SETTINGS} is not one of torch.nn's "
            f"{', '.join(ACTIVATIONS)}; no other code is run"
        )
    return getattr(torch.nn, name)()
