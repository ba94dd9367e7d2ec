"""Sentence encoders: what sentence-transformers' files say of pooling, the modules after it, and length."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from octavo.errors import ModelError, OctavoWarning

Pooling = Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
MODULES = "modules.json"
Find = Callable[[str], Path | None]
"""Returns a file of the model by its name, None where the model has no such file."""

# sentence-transformers before version 6 wrote one flag a mode
_FLAGS: dict[str, Pooling] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_LENGTH_FILES = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
SETTINGS = "config_sentence_transformers.json"
_IGNORED = ("Transformer", "Dropout")


def _gelu(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))), dtype=x.dtype)


ACTIVATIONS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "Identity": lambda x: x,
    "Tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "SiLU": lambda x: x / (1 + np.exp(-x)),
    "GELU": _gelu,
}
"""Activation functions of a dense module, by the class of torch that its configuration names."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Dense:
    """A dense module after pooling: activation(weight · x + bias).

    Arguments:
        weight: (out, in).
        bias: (out,) or None.
        activation: a key of `ACTIVATIONS`.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32] | None
    activation: str


@dataclass(frozen=True)
class Normalize:
    """A module that scales an embedding to length 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SentenceModules:
    """How the hidden states of a text become its embedding.

    Arguments:
        pooling: how one vector is made of a text's tokens.
        steps: what follows, in order. A model without files of sentence-transformers is normalized.
        max_length: tokens at which texts are cut; None leaves it to the model and its tokenizer.
        transformer: the folder of the transformer, relative to the model's; "" where they are one.
        embeds: whether the files describe an embedding model (a cross-encoder's do not).
        files: the files themselves by relative path, so that saving can carry them along.
    """

    pooling: Pooling = "mean"
    steps: tuple[Dense | Normalize, ...] = (Normalize(),)
    max_length: int | None = None
    transformer: str = ""
    embeds: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def step_names(self) -> tuple[str, ...]:
        """The steps after pooling by name, such as ("Dense", "Normalize")."""
        return tuple(type(step).__name__ for step in self.steps)

    def embed(self, hidden: NDArray[Any], mask: NDArray[Any]) -> NDArray[np.float32]:
        """Return the embeddings (batch, width) of hidden states (batch, length, width) and their mask."""
        vectors = pool(hidden, mask, self.pooling)
        for step in self.steps:
            vectors = _apply(step, vectors)
        return vectors


def pool(hidden: NDArray[Any], mask: NDArray[Any], pooling: Pooling) -> NDArray[np.float32]:
    """Return one vector a text, (batch, width), from hidden states (batch, length, width)."""
    rows = np.arange(len(mask))
    first = (mask != 0).argmax(1)
    if pooling == "cls":
        return np.asarray(hidden[rows, first], dtype=np.float32)
    if pooling == "lasttoken":
        return np.asarray(hidden[rows, mask.shape[1] - 1 - (mask[:, ::-1] != 0).argmax(1)], dtype=np.float32)
    weight = mask[..., None].astype(np.float32)
    if pooling == "max":
        return np.asarray(np.where(weight == 0, -np.inf, hidden).max(1), dtype=np.float32)
    if pooling == "weightedmean":  # the n-th token of a text weighs n
        weight = weight * (np.arange(1, mask.shape[1] + 1, dtype=np.float32) - first[:, None])[..., None]
    total = weight.sum(1)
    return np.asarray(
        (hidden * weight).sum(1) / (np.sqrt(total) if pooling == "mean_sqrt_len_tokens" else total),
        dtype=np.float32,
    )


def _apply(step: Dense | Normalize, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    if isinstance(step, Normalize):
        norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
        return np.asarray(vectors / np.maximum(norms, 1e-12), dtype=np.float32)
    product = vectors @ step.weight.T
    summed = product if step.bias is None else product + step.bias
    return np.asarray(ACTIVATIONS[step.activation](summed), dtype=np.float32)


# -- reading -------------------------------------------------------------------------------------------------


def in_folder(folder: Path) -> Find:
    """Return a function that finds the files of a folder."""

    def find(name: str) -> Path | None:
        return folder / name if (folder / name).is_file() else None

    return find


def read_modules(find: Find, model: str) -> SentenceModules:
    """Read what sentence-transformers wrote beside a model; without such files, the mean, normalized.

    A module that Octavo does not apply is an error where the embedding depends on it, otherwise a warning.
    """
    return _Reader(find, model).read()


class _Reader:
    def __init__(self, find: Find, model: str) -> None:
        self.find = find
        self.model = model
        self.files: dict[str, bytes] = {}

    def read(self) -> SentenceModules:
        listed = self._json(MODULES)
        if listed is None:
            return self._without_modules()
        entries = self._entries(listed)
        settings = self._settings()
        transformer = next((path for kind, path in entries if kind == "Transformer"), "")
        if transformer:  # what is saved has everything in one folder
            self.files[MODULES] = json.dumps(
                [{**e, "path": ""} if e.get("path") == transformer else e for e in listed], indent=2
            ).encode()
        kinds = [kind for kind, _ in entries]
        if "Pooling" not in kinds:
            return self._without_pooling(kinds, settings)
        unknown = [k for k in kinds if k not in (*_IGNORED, "Pooling", "Dense", "Normalize")]
        if unknown:
            raise ModelError(
                f"{self.model}: {MODULES} lists {', '.join(unknown)}, which Octavo cannot apply; "
                "give the folder of the transformer alone, or name a head"
            )
        pooling: Pooling = "mean"
        steps: list[Dense | Normalize] = []
        for kind, path in entries:
            if kind == "Pooling":
                pooling = self._pooling(path)
            elif kind == "Dense":
                steps.append(self._dense(path))
            elif kind == "Normalize":
                self._json(f"{path}/config.json")
                steps.append(Normalize())
        return SentenceModules(
            pooling=pooling,
            steps=tuple(steps),
            max_length=self._length(transformer),
            transformer=transformer,
            embeds=True,
            files=self.files,
        )

    def _without_modules(self) -> SentenceModules:
        pooling = "1_Pooling"
        if self._json(f"{pooling}/config.json") is None:
            return SentenceModules()
        return SentenceModules(pooling=self._pooling(pooling), files=self.files)

    def _without_pooling(self, kinds: list[str], settings: Mapping[str, Any]) -> SentenceModules:
        self._length("")
        if settings.get("model_type") != "CrossEncoder":
            rest = [kind for kind in kinds if kind not in _IGNORED]
            warnings.warn(
                f"{self.model}: {MODULES} lists no Pooling, so this is not read as a sentence encoder; "
                f"{', '.join(rest) or 'nothing else'} is not applied",
                OctavoWarning,
                stacklevel=2,
            )
        return SentenceModules(files=self.files)

    def _entries(self, listed: Any) -> list[tuple[str, str]]:
        """Kind and path of every module, in order."""
        if not isinstance(listed, list) or not all(isinstance(e, dict) and "type" in e for e in listed):
            raise ModelError(f"{self.model}: {MODULES} is not a list of modules; copy the folder again")
        entries = sorted(listed, key=lambda entry: entry.get("idx", 0))
        paths = [str(entry.get("path", "")) for entry in entries]
        for path in paths:
            if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
                raise ModelError(f"{self.model}: {MODULES} names {path!r}, which lies outside the folder")
        return [(str(e["type"]).rpartition(".")[2], path) for e, path in zip(entries, paths, strict=True)]

    def _settings(self) -> Mapping[str, Any]:
        settings = self._json(SETTINGS)
        settings = settings if isinstance(settings, dict) else {}
        name = settings.get("default_prompt_name")
        if name:
            prompt = (settings.get("prompts") or {}).get(name, "")
            warnings.warn(
                f"{self.model} puts the prompt {name!r} ({prompt!r}) before every text, Octavo does not; "
                "write it in front of the texts",
                OctavoWarning,
                stacklevel=2,
            )
        return settings

    def _pooling(self, path: str) -> Pooling:
        name = f"{path}/config.json"
        settings = self._object(name)
        modes = settings.get("pooling_mode")
        if modes is None:
            modes = [mode for flag, mode in _FLAGS.items() if settings.get(flag)] or ["mean"]
        modes = [modes] if isinstance(modes, str) else list(modes)
        if len(modes) != 1 or modes[0] not in POOLINGS:
            raise ModelError(
                f"{self.model}: {name} asks for the pooling {' + '.join(map(str, modes))}; "
                f"Octavo knows one of {', '.join(POOLINGS)}; give the folder of the transformer alone, "
                "or name a head"
            )
        chosen: Pooling = modes[0]
        return chosen

    def _dense(self, path: str) -> Dense:
        settings = self._object(f"{path}/config.json")
        activation = str(settings.get("activation_function", "Tanh")).rpartition(".")[2]
        odd = [
            f"{key} {settings[key]!r}"
            for key, usual in (
                ("module_input_name", "sentence_embedding"),
                ("module_output_name", "sentence_embedding"),
                ("use_residual", False),
            )
            if settings.get(key) not in (None, usual)
        ]
        if activation not in ACTIVATIONS:
            odd.append(f"activation_function {activation!r}")
        if odd:
            raise ModelError(
                f"{self.model}: {path} has {' and '.join(odd)}, which Octavo cannot apply; "
                f"activation functions it knows are {', '.join(ACTIVATIONS)}"
            )
        tensors = self._tensors(path)
        if "linear.weight" not in tensors:
            raise ModelError(f"{self.model}: {path}/model.safetensors lacks linear.weight; copy it again")
        return Dense(weight=tensors["linear.weight"], bias=tensors.get("linear.bias"), activation=activation)

    def _tensors(self, path: str) -> dict[str, NDArray[np.float32]]:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        name = f"{path}/model.safetensors"
        file = self.find(name)
        if file is None:
            raise ModelError(
                f"{self.model} has no {name} (pickled weights are not opened); "
                "save the model again with sentence-transformers"
            )
        self.files[name] = file.read_bytes()
        try:
            return {key: value.astype(np.float32) for key, value in load(self.files[name]).items()}
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ModelError(f"{self.model}: {name} cannot be read ({error}); copy it again") from error

    def _length(self, transformer: str) -> int | None:
        for file in _LENGTH_FILES:
            name = str(PurePosixPath(transformer) / file)
            settings = self._json(name)
            if transformer and name in self.files:
                self.files[file] = self.files.pop(name)
            if isinstance(settings, dict):
                if settings.get("do_lower_case"):
                    warnings.warn(
                        f"{self.model}: {name} asks for lower case; Octavo leaves that to the tokenizer",
                        OctavoWarning,
                        stacklevel=2,
                    )
                length = settings.get("max_seq_length")
                return length if isinstance(length, int) and length > 0 else None
        return None

    def _object(self, name: str) -> Mapping[str, Any]:
        settings = self._json(name)
        if not isinstance(settings, dict):
            raise ModelError(f"{self.model} has no {name}, which {MODULES} names; copy the folder again")
        return settings

    def _json(self, name: str) -> Any:
        """The content of a JSON file, kept for saving; None where there is none."""
        file = self.find(name)
        if file is None:
            return None
        self.files[name] = file.read_bytes()
        try:
            return json.loads(self.files[name])
        except ValueError as error:
            raise ModelError(f"{self.model}: {name} cannot be read ({error}); copy it again") from error


def write_files(modules: SentenceModules, folder: Path) -> None:
    """Write the files that sentence-transformers had beside the model into another folder."""
    for name, content in modules.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
