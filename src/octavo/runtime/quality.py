"""Fidelity of artifacts: how far their outputs are from those of the first one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from octavo.errors import ModelError
from octavo.fidelity import FidelityTally, Quality
from octavo.fidelity.measures import EMBEDDING
from octavo.graph.encoder import Encoder, Text
from octavo.runtime.artifacts import Artifact
from octavo.runtime.embedder import pool


def measure_quality(artifacts: Sequence[Artifact], texts: Sequence[Text]) -> list[Quality]:
    """Compare every artifact with the first on texts; the first with a tokenizer makes the tokens."""
    encoder = tokenizing_encoder(artifacts)
    tallies = [FidelityTally(encoder.head) for _ in artifacts]
    for _, batch in encoder.batches(list(texts)):
        feed = {name: tensor.numpy() for name, tensor in batch.items()}
        outputs = [
            named_outputs(artifact.run(feed), feed["attention_mask"], encoder) for artifact in artifacts
        ]
        for tally, found in zip(tallies, outputs, strict=True):
            tally.update(found, outputs[0], feed["attention_mask"])
    return [tally.result().quality() for tally in tallies]


def tokenizing_encoder(artifacts: Sequence[Artifact]) -> Encoder:
    """Return the first artifact's model that can read texts."""
    for artifact in artifacts:
        if artifact.encoder is not None and artifact.encoder.tokenizer is not None:
            return artifact.encoder
    raise ModelError("none of the artifacts has a tokenizer; add the model that the files were exported from")


def named_outputs(
    outputs: dict[str, NDArray[Any]], mask: NDArray[Any], encoder: Encoder
) -> dict[str, NDArray[Any]]:
    """Return a runtime's outputs under the model's names, and the embedding of each text of a bare encoder.

    A file may name its outputs otherwise and have more of them; their order is the model's.
    """
    named = dict(zip(encoder.output_names, outputs.values(), strict=False))
    if encoder.head == "encoder":
        named[EMBEDDING] = pool(next(iter(named.values())), mask, encoder.pooling)
    return named
