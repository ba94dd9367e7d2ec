from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

import octavo
from octavo.errors import DataError
from octavo.runtime.classifier import Classifier, Prediction
from octavo.runtime.exporting import export
from tests.runtime.conftest import TEXTS

KINDS: dict[str, dict[str, Any]] = {
    "classes": {"num_labels": 3},
    "several": {"num_labels": 3, "problem_type": "multi_label_classification"},
    "reranker": {"num_labels": 1},
    "regression": {"num_labels": 1, "problem_type": "regression"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", ["onnxruntime", "openvino"])
def test_predictions_are_those_of_transformers_pipeline(
    kind: str, backend: str, tiny_bert_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tiny_bert_folder("BertForSequenceClassification", **KINDS[kind])
    network = transformers.BertForSequenceClassification.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    expected = transformers.pipeline("text-classification", model=network, tokenizer=tokenizer)(list(TEXTS))
    classifier = Classifier(export(octavo.load(folder), tmp_path / "m.onnx"), folder, backend=backend)
    found = classifier.predict(list(TEXTS), batch_size=2)
    # OpenVINO computes floats in 16 bits where the processor can
    close = 1e-4 if backend == "onnxruntime" else 2e-2
    for one, other in zip(found, expected, strict=True):
        assert one.label == other["label"] and one.score == pytest.approx(other["score"], abs=close)


def test_one_text_gives_one_prediction_and_pairs_are_read_together(
    tiny_classifier: octavo.Encoder, tiny_saved: Path, tmp_path: Path
) -> None:
    classifier = Classifier(export(tiny_classifier, tmp_path / "m.onnx"), tiny_saved)
    assert isinstance(classifier.predict("rain"), Prediction) and len(classifier.labels) == 3
    apart, pair = classifier.scores(["rain again"]), classifier.scores([("rain", "again")])
    assert apart.shape == (1, 3) and np.isclose(apart.sum(), 1) and not np.allclose(apart, pair)
    with pytest.raises(DataError, match="no texts were given"):
        classifier.predict([])
