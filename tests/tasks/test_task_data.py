from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from octavo.errors import OctavoWarning
from octavo.graph import Encoder
from octavo.tasks.evaluation import score_task
from octavo.tasks.task_data import predict, read_task
from tests.experiments.conftest import write_mrpc
from tests.methods import tiny


@pytest.fixture(scope="module")
def classifier(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    return tiny.encoder(tiny_bert_folder())


def test_the_score_is_that_of_evaluate(classifier: Encoder, tmp_path: Path) -> None:
    write_mrpc(tmp_path)
    data = read_task(classifier, "glue/mrpc", tmp_path, max_length=8)
    with pytest.warns(OctavoWarning, match="longer than 8 tokens and were truncated"):
        scored = score_task(classifier, "glue/mrpc", data=tmp_path, max_length=8)
    assert data.metrics(classifier) == pytest.approx(scored.metrics)
    assert data.train.max_length == 8 and data.about["dev"]["partial"]


def test_predictions_are_in_the_order_of_the_examples(classifier: Encoder, tmp_path: Path) -> None:
    write_mrpc(tmp_path)
    data = read_task(classifier, "glue/mrpc", tmp_path)
    seen: list[tuple[int, int]] = []
    whole = predict(classifier, data.dev)
    parts = predict(classifier, data.dev, batch_size=5, progress=lambda *at: seen.append(at))
    assert np.allclose(whole, parts, atol=1e-5)
    assert seen[-1] == (24, 24)


def test_other_texts_for_every_seed(classifier: Encoder, tmp_path: Path) -> None:
    write_mrpc(tmp_path)
    data = read_task(classifier, "glue/mrpc", tmp_path)
    assert data.sample(4, 0) == data.sample(4, 0) != data.sample(4, 1)
    assert len(data.sample(1000, 0)) == 48
