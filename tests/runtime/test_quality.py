from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import octavo
from octavo.errors import ModelError
from octavo.graph import Encoder
from octavo.runtime.artifacts import Artifact, torch_runner
from octavo.runtime.quality import measure_quality
from octavo.tasks import compare

TEXTS = ["the dog barks", "a cat sleeps on the mat", "no"]


def artifact(encoder: Encoder) -> Artifact:
    return Artifact(
        name=encoder.name,
        kind="float",
        backend="torch",
        size=None,
        run=torch_runner(encoder),
        encoder=encoder,
    )


@pytest.mark.parametrize(
    "architecture", ["BertModel", "BertForSequenceClassification", "BertForTokenClassification"]
)
def test_artifacts_are_measured_as_models_are(
    architecture: str, tiny_bert_folder: Callable[..., Path]
) -> None:
    encoder = octavo.load(tiny_bert_folder(architecture))
    model = octavo.quantize(encoder, octavo.recipe("w4a32"))
    first, second = measure_quality([artifact(encoder), artifact(model)], TEXTS)
    fidelity = compare(model, encoder, TEXTS).fidelity
    assert first.sqnr == math.inf
    assert fidelity is not None and second.cosine is not None and fidelity.cosine is not None
    assert second.cosine.mean == pytest.approx(fidelity.cosine.mean, abs=1e-6)
    assert second.agreement == fidelity.quality().agreement


def test_a_file_may_name_its_outputs_otherwise_and_have_more(tiny_encoder: Encoder) -> None:
    plain = artifact(tiny_encoder)

    def renamed(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        (hidden,) = plain.run(batch).values()
        return {"hidden": hidden, "pooler": hidden[:, 0]}

    other = replace(plain, run=renamed, encoder=None)
    assert measure_quality([plain, other], TEXTS)[1].sqnr == math.inf


def test_somebody_must_make_tokens(tiny_encoder: Encoder) -> None:
    with pytest.raises(ModelError, match="none of the artifacts has a tokenizer"):
        measure_quality([replace(artifact(tiny_encoder), encoder=None)], TEXTS)
