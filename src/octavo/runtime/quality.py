"""Fidelity of artifacts: how far their outputs are from those of the first one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from octavo.errors import ModelError
from octavo.fidelity import FidelityTally, Quality
from octavo.fidelity.content import content_mask, label_names
from octavo.fidelity.measures import EMBEDDING
from octavo.graph.encoder import Encoder, Text
from octavo.runtime.artifacts import Artifact, is_file, split_backend
from octavo.runtime.file_model import FileModel, find_tokenizer_folder, open_model

Reader = Encoder | FileModel
"""What cuts texts into tokens, and knows what the outputs of all artifacts mean."""


def measure_quality(
    artifacts: Sequence[Artifact], texts: Sequence[Text], reader: Reader | None = None
) -> list[Quality]:
    """Compare every artifact with the first on texts; the first with a tokenizer makes the tokens."""
    chosen = reader if reader is not None else find_reader(artifacts)
    tallies = [FidelityTally(chosen.head, labels=label_names(chosen)) for _ in artifacts]
    for _, batch in chosen.batches(list(texts)):
        content = content_mask(chosen, batch)
        feed = {name: tensor.numpy() for name, tensor in batch.items()}
        outputs = [
            named_outputs(artifact.run(feed), feed["attention_mask"], chosen) for artifact in artifacts
        ]
        for tally, found in zip(tallies, outputs, strict=True):
            tally.update(found, outputs[0], feed["attention_mask"], content)
    return [tally.result().quality() for tally in tallies]


def find_reader(artifacts: Sequence[Artifact], tokenizer: str | Path | None = None) -> Reader:
    """Return the first artifact that can read texts; a tokenizer that is given is that of the files."""
    models = [a.encoder for a in artifacts if a.encoder is not None and a.encoder.tokenizer is not None]
    if models and tokenizer is None:
        return models[0]
    for artifact in artifacts:
        path = Path(artifact.source)
        if artifact.encoder is not None or not artifact.source:
            continue
        if tokenizer is not None or find_tokenizer_folder(path) is not None:
            return open_model(path, tokenizer, run=artifact.run)
    if models:
        raise ModelError(f"a tokenizer was given ({tokenizer}), but no file that needs one; leave it out")
    raise ModelError(
        "none of the artifacts has a tokenizer; add the model that the files were exported from, "
        "put the tokenizer's files beside a file, or give --tokenizer DIR"
    )


def as_reader(artifact: Artifact, others: Sequence[Artifact], tokenizer: str | Path | None = None) -> Reader:
    """Return one artifact as a model that reads texts; a file may take the tokenizer of a model beside it."""
    if artifact.encoder is not None:
        return artifact.encoder
    path = Path(artifact.source)
    beside = next((each.source for each in others if each.encoder is not None), None)
    folder = tokenizer if tokenizer is not None else find_tokenizer_folder(path) or beside
    return open_model(path, folder, run=artifact.run)


def can_read_texts(models: Sequence[str]) -> bool:
    """Return whether artifacts, as `bench` takes them, have a tokenizer among them as far as can be seen."""
    paths = [split_backend(given)[0] for given in models]
    return any(not is_file(path) or find_tokenizer_folder(Path(path)) is not None for path in paths)


def named_outputs(
    outputs: dict[str, NDArray[Any]], mask: NDArray[Any], reader: Reader
) -> dict[str, NDArray[Any]]:
    """Return a runtime's outputs under the model's names, and the embedding of each text of a bare encoder.

    A file may name its outputs otherwise and have more of them; their order is the model's.
    """
    named = dict(zip(reader.output_names, outputs.values(), strict=False))
    if reader.head == "encoder":
        named[EMBEDDING] = reader.sentence.embed(next(iter(named.values())), mask)
    return named
