from __future__ import annotations

import pytest

from octavo.errors import OctavoWarning
from octavo.tasks.glue import glue_task
from octavo.tasks.labels import label_mapping
from tests.tasks.fake import FakeEncoder


def mapping(task: str, label2id: dict[str, int] | None) -> tuple[int, ...] | None:
    model = FakeEncoder(lambda text: {}, head="sequence-classification", label2id=label2id)
    return label_mapping(model, glue_task(task))


@pytest.mark.parametrize(
    ("task", "label2id", "expected"),
    [
        ("glue/mnli", {"CONTRADICTION": 0, "Neutral": 1, "entailment": 2}, (2, 1, 0)),
        ("glue/mnli", {"contradiction": 0, "entailment": 1, "neutral": 2}, (2, 0, 1)),
        ("glue/rte", {"not entailment": 0, "entailment": 1}, (1, 0)),
        ("glue/sst2", {"NEGATIVE": 0, "POSITIVE": 1}, (0, 1)),
        ("glue/cola", {"1": 0, "0": 1}, (1, 0)),
    ],
    ids=["reversed", "rotated", "space", "same", "spelled-as-in-the-file"],
)
def test_labels_are_matched_by_name(task: str, label2id: dict[str, int], expected: tuple[int, ...]) -> None:
    assert mapping(task, label2id) == expected


@pytest.mark.parametrize(
    "label2id", [None, {}, {"LABEL_0": 0, "LABEL_1": 1}], ids=["none", "empty", "default"]
)
def test_names_that_say_nothing_leave_the_order(label2id: dict[str, int] | None) -> None:
    assert mapping("glue/rte", label2id) is None


def test_regression_has_no_labels() -> None:
    assert mapping("glue/stsb", {"score": 0}) is None


def test_other_names_are_matched_by_index_with_a_warning() -> None:
    with pytest.warns(OctavoWarning, match="fake names its labels no, yes, glue/rte entailment, .*by index"):
        assert mapping("glue/rte", {"no": 0, "yes": 1}) is None


def test_names_that_match_in_part_are_not_a_match() -> None:
    with pytest.warns(OctavoWarning, match="by index"):
        assert mapping("glue/rte", {"entailment": 0, "not_entailment": 1, "unsure": 2}) is None
