"""Classification heads and tasks: does a head fit a task, and what its outputs are called."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.errors import ModelError
from octavo.graph import Encoder
from octavo.tasks.glue import glue_task
from octavo.tasks.kinds import MultiLabel, Task


def check_head(encoder: Encoder, task: str) -> None:
    """Refuse a model whose head does not fit the task."""
    needed = glue_task(task).outputs
    outputs = (
        getattr(encoder.config, "num_labels", None) if encoder.head == "sequence-classification" else None
    )
    if outputs != needed:
        has = "no classification head" if outputs is None else f"a head with {outputs} outputs"
        raise ModelError(
            f"{encoder.name} has {has}, {task} needs {needed}; "
            f"fine-tune it first: octavo finetune MODEL --task {task}"
        )


def name_outputs(encoder: Encoder, task: str | Task, labels: Sequence[str] = ()) -> None:
    """Write the task's labels into the configuration, so that whoever loads the model knows them.

    Arguments:
        labels: of a user's own task, what its outputs stand for; none for numbers.
    """
    if isinstance(task, str):
        labels = glue_task(task).labels or ()
    if isinstance(task, MultiLabel):
        encoder.config.problem_type = "multi_label_classification"
    if not labels:
        if encoder.head == "sequence-classification":
            encoder.config.problem_type = "regression"
        return
    encoder.config.id2label = dict(enumerate(labels))
    encoder.config.label2id = {label: index for index, label in enumerate(labels)}
