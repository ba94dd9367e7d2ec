from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from octavo.errors import ModelError
from octavo.tasks.heads import check_head, name_outputs


def encoder(head: str = "sequence-classification", outputs: int = 2) -> Any:
    return SimpleNamespace(name="m", head=head, config=SimpleNamespace(num_labels=outputs))


def test_a_head_that_does_not_fit_is_refused() -> None:
    check_head(encoder(), "glue/rte")
    with pytest.raises(
        ModelError, match="m has a head with 2 outputs, glue/mnli needs 3; fine-tune it first"
    ):
        check_head(encoder(), "glue/mnli")
    with pytest.raises(ModelError, match="m has no classification head, glue/rte needs 2"):
        check_head(encoder("encoder"), "glue/rte")


def test_outputs_have_the_names_of_the_task() -> None:
    model = encoder()
    name_outputs(model, "glue/mrpc")
    assert model.config.id2label == {0: "not_equivalent", 1: "equivalent"}
    name_outputs(model, "glue/stsb")
    assert model.config.problem_type == "regression"
