"""An exported file with all that it takes to read texts: tokenizer, length and labels, from its own files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from octavo.errors import DataError, ModelError, SpecError
from octavo.runtime.backends import BACKENDS, find_backend
from octavo.runtime.backends.runner import Runner
from octavo.sentence import SentenceModules, in_folder, read_modules

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Text = str | tuple[str, str]

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model")
_HEADS = {"last_hidden_state": "encoder", "start_logits": "question-answering"}
_LENGTH_UNKNOWN = 512
# where the file of a folder lies; the first is for browsers, unless the second is in float
_FILES = ("onnx/model_quantized.onnx", "onnx/model.onnx", "model.onnx")
_AS_LARGE = 1.5  # a file of floats is about four times as large as one of bytes


@dataclass(frozen=True, kw_only=True, eq=False)
class TextFile:
    """An exported file and its tokenizer; it needs no torch.

    Arguments:
        path: the file.
        folder: where its tokenizer lies, with Hugging Face's and sentence-transformers' configuration.
        metadata: what the file says of itself.
        head: as in `Encoder`.
        labels: names of the classes, in order; none where the head has no classes.
        max_length: tokens at which texts are cut.
        settings: Hugging Face's configuration in the folder, {} where there is none.
    """

    path: Path
    folder: Path
    run: Runner
    tokenizer: PreTrainedTokenizerBase
    metadata: Mapping[str, str]
    head: str
    labels: tuple[str, ...]
    max_length: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def batches(
        self, texts: Sequence[Text], batch_size: int, **options: Any
    ) -> Iterator[tuple[list[int], Any]]:
        """Yield texts of similar length as tokens (batch, length), each with the texts' positions."""
        _check_texts(texts, batch_size)
        order = sorted(range(len(texts)), key=lambda index: len("".join(texts[index])))
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            pairs: Any = [texts[i] if isinstance(texts[i], str) else tuple(texts[i]) for i in chosen]
            settings: dict[str, Any] = {"truncation": True, "max_length": self.max_length, **options}
            yield chosen, self.tokenizer(pairs, padding=True, return_tensors="np", **settings)

    def require_head(self, head: str, purpose: str) -> None:
        """Refuse a file whose head serves another purpose."""
        if self.head != head:
            raise ModelError(f"{self.path} has the head {self.head}; only a {head} head {purpose}")


def open_text_file(
    file: str | Path,
    tokenizer: str | Path | None = None,
    *,
    backend: str | None = None,
    max_length: int | None = None,
    threads: int | None = None,
    run: Runner | None = None,
) -> TextFile:
    """Open an exported file (or a folder laid out as on the hub) with its tokenizer.

    Arguments:
        tokenizer: the folder (or the model, as `octavo.load` takes it) that has the tokenizer; it is looked
            for beside the file if left out.
        backend: what runs the file; the first that reads such files if left out.
        max_length: cut texts at other than the length that the file states.
        threads: how many cores to use; the backend's choice if left out.
        run: the file as it was opened already.
    """
    if threads is not None and threads < 1:
        raise SpecError(f"{threads} threads were asked for; use 1 or more, or leave it to the backend")
    path = _file_of(Path(file))
    chosen = find_backend(backend) if backend is not None else _backend_of(path)
    opened = run if run is not None else chosen.open(path, threads)
    folder = tokenizer_folder(path, tokenizer)
    metadata = file_metadata(path, opened)
    outputs = tuple(getattr(opened, "outputs", ()))
    head = metadata.get("head") or next((_HEADS[name] for name in outputs if name in _HEADS), "")
    if not head:
        raise ModelError(
            f"{path} does not say which head it has, and its outputs ({', '.join(outputs)}) do not tell; "
            "give a file that Octavo exported"
        )
    settings = _settings(folder)
    loaded = _tokenizer(folder)
    modules = read_modules(in_folder(folder), str(folder)) if head == "encoder" else SentenceModules()
    return TextFile(
        path=path,
        folder=folder,
        run=opened,
        tokenizer=loaded,
        metadata=metadata,
        head=head,
        labels=_labels(metadata, settings) if head.endswith("classification") else (),
        max_length=max_length or file_length(metadata, modules, loaded),
        settings=settings,
    )


def _check_texts(texts: Sequence[Text], batch_size: int) -> None:
    if not isinstance(texts, Sequence):
        raise DataError(f"texts are a {type(texts).__name__}; give a list, such as list(texts)")
    if isinstance(texts, str) or not texts:
        raise DataError("no texts were given; give a list with at least one text")
    for number, text in enumerate(texts, 1):
        parts = [text] if isinstance(text, str) else text if isinstance(text, tuple | list) else ()
        if len(parts) not in (1, 2) or not all(isinstance(part, str) for part in parts):
            raise DataError(f"text {number} is {text!r:.60}; give a string, or a pair of strings")
    if batch_size < 1:
        raise DataError(f"{batch_size} texts per batch were asked for; use 1 or more")


class TextModel:
    """What answers for texts with an exported file; a kind of it names the head that it needs.

    Arguments are those of `octavo.open`.
    """

    head: ClassVar[str]
    purpose: ClassVar[str]
    """What only this head does, as the end of a sentence."""
    places: ClassVar[bool] = False
    """Whether its answers are stretches of a text, so that the tokenizer has to know where tokens stand."""

    def __init__(
        self,
        file: str | Path,
        tokenizer: str | Path | None = None,
        *,
        backend: str | None = None,
        max_length: int | None = None,
        threads: int | None = None,
    ) -> None:
        """Open a file; the arguments are those of `octavo.open`."""
        self.file = open_text_file(file, tokenizer, backend=backend, max_length=max_length, threads=threads)
        self.file.require_head(self.head, self.purpose)
        if self.places and not self.file.tokenizer.is_fast:
            raise ModelError(
                f"{self.file.folder}: its tokenizer does not say where tokens stand in a text; "
                "add the tokenizer.json of a fast one"
            )


# -- where things are ----------------------------------------------------------------------------------------


def _file_of(given: Path) -> Path:
    if not given.is_dir():
        return given
    found = [given / name for name in _FILES if (given / name).is_file()]
    if not found:
        raise ModelError(
            f"{given} has no exported file ({', '.join(_FILES)}); give the file itself, write such a folder "
            "with octavo export --layout hub, or open a model of torch with octavo.load"
        )
    sizes = [file.stat().st_size for file in found]
    # a file for browsers takes longer here than its twin for servers
    return found[1] if len(found) > 1 and sizes[1] < _AS_LARGE * sizes[0] else found[0]


def _backend_of(path: Path) -> Any:
    found = [backend for backend in BACKENDS.values() if path.name.endswith(backend.endings)]
    return found[0] if found else next(iter(BACKENDS.values()))


def tokenizer_folder(file: Path, given: str | Path | None = None) -> Path:
    """Return the folder of a file's tokenizer: the one given, or one of those where it usually lies."""
    if given is not None:
        return _located(given)
    found = find_tokenizer_folder(file)
    if found is None:
        raise ModelError(
            f"{file} has no tokenizer beside it, nor in {file.with_suffix('').name}/; copy the tokenizer's "
            "files there, or name the model it was exported from (--tokenizer DIR on the command line)"
        )
    return found


def _located(given: str | Path) -> Path:
    if Path(given).is_dir():
        return Path(given)
    # brings torch, which who names a folder does without
    from octavo.graph.capture.source import locate

    return Path(locate(str(given)))


def find_tokenizer_folder(file: Path) -> Path | None:
    """Return the file's own folder, one of the file's name beside it, or (as on the hub) the one above."""
    places = [file.parent, file.with_suffix("")]
    places += [file.parent.parent] if file.absolute().parent.name in ("onnx", "openvino") else []
    return next(
        (place for place in places if any((place / name).is_file() for name in _TOKENIZER_FILES)), None
    )


# -- what they say -------------------------------------------------------------------------------------------


def file_metadata(file: Path, run: object) -> Mapping[str, str]:
    """What a file says of itself; OpenVINO does not hand it out, so the file is read."""
    told: Mapping[str, str] = getattr(run, "metadata", {})
    if told or file.suffix != ".onnx" or find_spec("onnx") is None:
        return told
    import onnx

    return {entry.key: entry.value for entry in onnx.load(str(file), load_external_data=False).metadata_props}


def file_length(metadata: Mapping[str, str], modules: SentenceModules, tokenizer: Any) -> int:
    """Return where texts are cut: as the file, sentence-transformers' files or the tokenizer say."""
    stated = metadata.get("max_length", "")
    known = int(getattr(tokenizer, "model_max_length", 0) or 0)
    fallback = known if 1 < known < 10**6 else _LENGTH_UNKNOWN
    return int(stated) if stated.isdecimal() and int(stated) > 0 else modules.max_length or fallback


def _labels(metadata: Mapping[str, str], settings: Mapping[str, Any]) -> tuple[str, ...]:
    listed = json.loads(metadata.get("labels", "[]"))
    if listed:
        return tuple(map(str, listed))
    named = settings.get("id2label") or {}
    return tuple(str(named[key]) for key in sorted(named, key=int))


def _settings(folder: Path) -> Mapping[str, Any]:
    file = folder / "config.json"
    if not file.is_file():
        return {}
    try:
        settings = json.loads(file.read_bytes())
    except ValueError as error:
        raise ModelError(f"{file} cannot be read ({error}); copy it again") from error
    return settings if isinstance(settings, dict) else {}


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    from transformers import AutoTokenizer

    try:
        loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(str(folder))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{folder} has no tokenizer that can be loaded; give the saved model's folder"
        ) from error
    return loaded
