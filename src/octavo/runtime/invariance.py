"""Invariance: does a text's result change with the batch it is in, its padding, its place or the threads?

With static ranges, integers at every site depend on the text alone. What can still differ is the order in
which a runtime sums floats between them, which a float model shows as well. Dynamic ranges are those of a
whole batch.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import DataError, MissingExtraError, ModelError
from octavo.fidelity.measures import EMBEDDING
from octavo.graph import QuantizedEncoder, batches
from octavo.graph.encoder import Encoder, Text
from octavo.progress import Progress, silent
from octavo.runtime.artifacts import TORCH, is_file, open_artifact, open_artifacts
from octavo.runtime.backends import DEFAULT
from octavo.runtime.backends.runner import Runner
from octavo.runtime.exporting import export
from octavo.runtime.quality import Reader, find_reader, named_outputs

if TYPE_CHECKING:
    from octavo.runtime.artifacts import Artifact

BATCHES = (2, 8, 32, 64)
LENGTHS = (128, 512)
MOVED = 1e-5
"""A vector is moved where one of its numbers changes by more than this; sums of floats stay far below it."""

Feed = dict[str, NDArray[Any]]
Batches = Callable[[], Iterator[tuple[Sequence[int], Feed]]]


@dataclass(frozen=True, kw_only=True)
class Change:
    """What one circumstance changes.

    Arguments:
        circumstance: in words, such as `batches of 8`.
        changed: results of how many texts change at all, be it in the last bit.
        moved: results of how many texts change by more than `MOVED` somewhere.
        worst: the smallest cosine of a text's result with the one it has alone.
    """

    circumstance: str
    changed: int
    moved: int
    worst: float


@dataclass(frozen=True, kw_only=True)
class InvarianceRow:
    """One artifact, and what every circumstance changes."""

    name: str
    kind: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, kw_only=True)
class Invariance:
    """The rows of one run over so many texts."""

    texts: int
    rows: tuple[InvarianceRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the measurement for JSON."""
        return asdict(self)


def measure_invariance(
    models: Sequence[str],
    texts: Sequence[Text],
    *,
    backends: Sequence[str] = (DEFAULT,),
    tokenizer: str | Path | None = None,
    batch_sizes: Sequence[int] = BATCHES,
    lengths: Sequence[int] = LENGTHS,
    threads: int = 2,
    progress: Progress = silent,
) -> Invariance:
    """Count the texts whose results change with their batch, padding, order or threads, for every artifact.

    A text alone, without padding and on one thread, is what everything is compared with. A float model is
    exported and measured as a file, and so is ONNX Runtime's own dynamic int8 of it.

    Arguments:
        batch_sizes: texts per batch, in the order they are given in and shuffled.
        lengths: tokens to which a single text is padded, as far as the model takes so many.
        threads: another number of threads than one.
    """
    if not texts:
        raise DataError("no texts were given; give a list with at least one text")
    with tempfile.TemporaryDirectory() as folder:
        files = [file for given in models for file in _files(given, backends, Path(folder))]
        reader = _reader(models, files, tokenizer)
        circumstances = _circumstances(reader, list(texts), batch_sizes, lengths)
        total = len(files) * (len(circumstances) + 1)
        rows = []
        for index, (name, file) in enumerate(files):
            steps = _counted(progress, index * (len(circumstances) + 1), total)
            rows.append(_row(name, file, reader, circumstances, threads, len(texts), steps))
    return Invariance(texts=len(texts), rows=tuple(rows))


def _files(given: str, backends: Sequence[str], folder: Path) -> list[tuple[str, str]]:
    """Names and files to measure: a file in every backend, a float model as a file and as dynamic int8."""
    if is_file(given.rpartition("@")[0] or given) or is_file(given):
        return [(a.name, f"{a.source}@{a.backend}") for a in open_artifacts(given, backends, 1)]
    encoder = open_artifact(given).encoder
    assert encoder is not None, "what is no file is a model"
    if isinstance(encoder, QuantizedEncoder):
        raise ModelError(f"{given} is simulated; export it, and give the file")
    plain = folder / f"{len(list(folder.iterdir()))}.onnx"
    export(encoder, plain)
    dynamic = dynamic_int8(plain, plain.with_name(f"{plain.stem}-dynamic.onnx"))
    return [
        (f"{given}, float", f"{plain}@{DEFAULT}"),
        (f"{given}, dynamic int8 of ONNX Runtime", f"{dynamic}@{DEFAULT}"),
    ]


def dynamic_int8(file: Path, target: Path) -> Path:
    """Write what ONNX Runtime's own dynamic quantization makes of a float file."""
    import logging

    try:
        from onnxruntime.quantization import QuantType, quantize_dynamic
    except ImportError as error:
        raise MissingExtraError("onnx", "Dynamic int8 of ONNX Runtime") from error
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it recommends a step for other exporters' files
    try:
        quantize_dynamic(str(file), str(target), weight_type=QuantType.QInt8)
    finally:
        logging.disable(before)
    return target


def _reader(models: Sequence[str], files: Sequence[tuple[str, str]], tokenizer: str | Path | None) -> Reader:
    named = [given for given in models if not is_file(given.rpartition("@")[0] or given)]
    if named and tokenizer is None:
        encoder = open_artifact(named[0]).encoder
        if encoder is not None:
            return encoder
    artifacts: list[Artifact] = [open_artifact(file, threads=1) for _, file in files]
    return find_reader([a for a in artifacts if a.backend != TORCH], tokenizer)


# -- circumstances -------------------------------------------------------------------------------------------


def _circumstances(
    reader: Reader, texts: list[Text], batch_sizes: Sequence[int], lengths: Sequence[int]
) -> dict[str, tuple[Batches, bool]]:
    """By name: what yields the texts as batches, and whether they run on several threads."""
    shuffled = list(range(len(texts)))
    random.Random(0).shuffle(shuffled)
    largest = max(batch_sizes)
    made: dict[str, tuple[Batches, bool]] = {"alone": (_batches(reader, texts, 1), False)}
    for size in batch_sizes:
        made[f"batches of {size}"] = (_batches(reader, texts, size), False)
    made[f"batches of {largest}, shuffled"] = (_batches(reader, texts, largest, shuffled), False)
    for length in lengths:
        if length <= _most_tokens(reader):
            made[f"padded to {length}"] = (_padded(reader, texts, length), False)
    made["other threads"] = (_batches(reader, texts, 1), True)
    made[f"other threads, batches of {largest}"] = (_batches(reader, texts, largest), True)
    return made


def _most_tokens(reader: Reader) -> int:
    # a file's own length is where texts are cut; a model says how many tokens it takes
    positions = int(getattr(reader.config, "max_position_embeddings", 0) or 0)
    return max(reader.max_length, positions)


def _batches(reader: Reader, texts: list[Text], size: int, order: Sequence[int] | None = None) -> Batches:
    """Texts in the order given, each batch padded to its longest text."""
    length = reader.text_length if isinstance(reader, Encoder) else reader.max_length
    places = list(order if order is not None else range(len(texts)))

    def run() -> Iterator[tuple[Sequence[int], Feed]]:
        assert reader.tokenizer is not None, "whatever reads texts has a tokenizer"
        for chosen, batch in batches.from_texts(
            reader.tokenizer, texts, reader.inputs, size, length, True, places
        ):
            yield chosen, {name: tensor.numpy() for name, tensor in batch.items()}

    return run


def _padded(reader: Reader, texts: list[Text], length: int) -> Batches:
    """Every text alone, with as much padding as makes it `length` tokens long."""
    alone = _batches(reader, texts, 1)

    def run() -> Iterator[tuple[Sequence[int], Feed]]:
        assert reader.tokenizer is not None, "whatever reads texts has a tokenizer"
        fill = {"input_ids": reader.tokenizer.pad_token_id or 0}
        for chosen, feed in alone():
            missing = max(length - feed["input_ids"].shape[1], 0)
            width = ((0, 0), (0, missing))
            yield chosen, {n: np.pad(x, width, constant_values=fill.get(n, 0)) for n, x in feed.items()}

    return run


# -- counting ------------------------------------------------------------------------------------------------


def _row(
    name: str,
    file: str,
    reader: Reader,
    circumstances: dict[str, tuple[Batches, bool]],
    threads: int,
    texts: int,
    step: Callable[[], None],
) -> InvarianceRow:
    single, several = open_artifact(file, threads=1), open_artifact(file, threads=threads)
    step()
    alone: list[NDArray[Any]] = []
    changes = []
    for circumstance, (made, with_threads) in circumstances.items():
        results = _results((several if with_threads else single).run, made, reader, texts)
        if circumstance == "alone":
            alone = results
        else:
            said = circumstance.replace("other threads", f"{threads} threads")
            changes.append(_change(said, results, alone))
        step()
    return InvarianceRow(name=name, kind=single.kind, changes=tuple(changes))


def _results(run: Runner, made: Batches, reader: Reader, texts: int) -> list[NDArray[Any]]:
    """The result of every text: its embedding, or the logits of the text or of its tokens."""
    found: dict[int, NDArray[Any]] = {}
    for chosen, feed in made():
        mask = feed["attention_mask"]
        outputs = named_outputs(run(feed), mask, reader)
        if EMBEDDING in outputs:  # hidden states of padding mean nothing
            outputs = {EMBEDDING: outputs[EMBEDDING]}
        for row, index in enumerate(chosen):
            parts = [array[row] for array in outputs.values()]
            if reader.head not in ("encoder", "sequence-classification"):
                parts = [part[mask[row] != 0] for part in parts]
            found[index] = np.concatenate([np.ravel(part) for part in parts])
    return [found[index] for index in range(texts)]


def _change(circumstance: str, results: Sequence[NDArray[Any]], alone: Sequence[NDArray[Any]]) -> Change:
    pairs = list(zip(results, alone, strict=True))
    return Change(
        circumstance=circumstance,
        changed=sum(not np.array_equal(x, y) for x, y in pairs),
        moved=sum(bool(np.abs(x - y).max() > MOVED) for x, y in pairs),
        worst=min(_cosine(x, y) for x, y in pairs),
    )


def _cosine(x: NDArray[Any], y: NDArray[Any]) -> float:
    if np.array_equal(x, y):
        return 1.0
    x, y = x.astype(np.float64), y.astype(np.float64)
    return float(x @ y / max(float(np.linalg.norm(x) * np.linalg.norm(y)), 1e-30))


def _counted(progress: Progress, start: int, total: int) -> Callable[[], None]:
    done = start

    def step() -> None:
        nonlocal done
        done += 1
        progress(done, total)

    return step
