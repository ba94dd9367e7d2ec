"""Evaluation of a model: fidelity to a reference on plain texts, or the score of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from octavo.errors import DataError, ModelError, OctavoError
from octavo.fidelity import Fidelity, Reference
from octavo.progress import Progress, silent
from octavo.tasks.examples import Examples
from octavo.tasks.glue import GLUE, GlueTask, measure, predictions
from octavo.tasks.glue_files import read_glue
from octavo.tasks.hub import read_glue_hub
from octavo.tasks.kinds import Running, Task
from octavo.tasks.kinds.task import DEV
from octavo.tasks.labels import label_mapping
from octavo.tasks.model import Model, run, trained_length
from octavo.tasks.reading.rows import Source
from octavo.tasks.similarity import SIMILARITY, similarity_metrics
from octavo.tasks.task_file import find_task
from octavo.tasks.texts import Text

FIDELITY = "fidelity"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of an evaluation.

    task is `fidelity` or a task's name. metrics and score are times 100 (None and empty for fidelity).
    full is the size of the published split; partial says that fewer examples were there; skipped counts
    broken lines left out. max_length is what texts were cut to, None for what the model takes. label_order
    says whether the model's labels were matched by name or by index. reference has the metrics of the model
    `against`, and agreement says how far both give the same answers to a task, times 100.
    """

    model: str
    task: str
    examples: int
    split: str | None = None
    full: int | None = None
    partial: bool = False
    skipped: int = 0
    max_length: int | None = None
    source: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    score: float | None = None
    label_order: Literal["name", "index"] | None = None
    against: str | None = None
    reference: dict[str, float] = field(default_factory=dict)
    agreement: dict[str, float] = field(default_factory=dict)
    fidelity: Fidelity | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**asdict(self), "fidelity": None if self.fidelity is None else self.fidelity.to_dict()}


def evaluate(
    model: Model,
    *,
    against: Model | None = None,
    texts: Sequence[Text] | None = None,
    task: str | Task | None = None,
    data: Source | None = None,
    split: str | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    progress: Progress = silent,
) -> Evaluation:
    """Compare a model with another on texts, or score it on a task.

    Arguments:
        against, texts: the reference and the texts both run on; gives fidelity.
        task: glue/cola ... glue/wnli, similarity/stsb for bare encoders, or a task of your own: a kind such
            as `Classification`, or the path of a task file; gives a score, and with `against` also how far
            both models agree.
        data: folder with GLUE's task folders, without which the task is read from the hub; of a task of your
            own the file, folder or rows to score instead of those it names.
        split: the task's split; by default dev, and dev_matched for MNLI.
        max_length: most tokens of a task's text; by default what the model was fine-tuned with, else what it
            takes.
        progress: called with (texts done, texts in all) after every batch.
    """
    _check_arguments(against, texts, task, data, split, batch_size)
    if task is not None:
        return score_task(
            model,
            task,
            data=data,
            split=split,
            max_length=max_length,
            batch_size=batch_size,
            progress=progress,
            against=against,
        )
    assert against is not None and texts is not None  # _check_arguments saw to it
    return compare(model, against, texts, batch_size=batch_size, progress=progress)


def compare(
    model: Model,
    against: Model,
    texts: Sequence[Text],
    *,
    batch_size: int = 32,
    progress: Progress = silent,
) -> Evaluation:
    """Return the fidelity of a model to another on the same batches of texts."""
    _check_comparable(model, against)
    # batches are the model's own: it may read inputs that the reference lacks
    reference = Reference(against, model.batches(texts, batch_size=batch_size), len(texts), keep=0)
    result = reference.compare(model, progress)
    return Evaluation(
        model=model.name, task=FIDELITY, examples=len(texts), against=against.name, fidelity=result
    )


def score_task(
    model: Model,
    task: str | Task,
    *,
    data: Source | None = None,
    split: str | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    progress: Progress = silent,
    against: Model | None = None,
) -> Evaluation:
    """Return the score of a model on a task; texts are cut as in its training, or to `max_length`.

    With `against`, a task of the user's own is scored for that model as well, and their answers are compared.
    """
    task = find_task(task, data)
    if isinstance(task, Task):
        running = Running(
            batch_size=batch_size, max_length=max_length or trained_length(model), progress=progress
        )
        return _score_kind(model, task, split or DEV, running, against)
    if against is not None:
        raise OctavoError(f"{task} is scored for one model; leave out the reference, or give texts instead.")
    described = GLUE.get(task) or SIMILARITY[task]
    _check_head(model, task, described)
    examples = read_examples(described, data, split)
    length = max_length or trained_length(model)
    order: Literal["name", "index"] | None = None
    if task in SIMILARITY:
        metrics = similarity_metrics(
            model, examples, batch_size=batch_size, max_length=length, progress=progress
        )
    else:
        mapping = label_mapping(model, described)
        order = None if described.regression else ("index" if mapping is None else "name")
        logits = _logits(model, examples, described, batch_size, progress, length)
        metrics = measure(described, predictions(described, logits, mapping), examples.labels)
    return Evaluation(
        model=model.name,
        task=task,
        examples=len(examples),
        split=examples.split,
        full=examples.full,
        partial=examples.partial,
        skipped=examples.skipped,
        max_length=length,
        source=examples.source,
        metrics=metrics,
        score=sum(metrics.values()) / len(metrics),
        label_order=order,
    )


def _score_kind(model: Model, task: Task, split: str, running: Running, against: Model | None) -> Evaluation:
    """Return the score on a task of the user's own; progress counts the texts of each model anew."""
    models = (model,) if against is None else (model, against)
    for each in models:
        task.check_model(each)
    examples = task.read(split)
    answers = [task.predict(each, examples, running) for each in models]
    metrics = task.measure(answers[0], examples)
    return Evaluation(
        model=model.name,
        task=task.title,
        examples=len(examples),
        split=examples.split,
        full=examples.full,
        max_length=running.max_length,
        source=examples.source,
        metrics=metrics,
        score=next(iter(metrics.values())),
        against=None if against is None else against.name,
        reference=task.measure(answers[1], examples) if against is not None else {},
        agreement=task.agreement(*answers) if against is not None else {},
    )


def read_examples(task: GlueTask, data: Source | None, split: str | None = None) -> Examples:
    """Return one split of a task: by its own reader, from a folder of GLUE's files, or else from the hub."""
    if not isinstance(data, str | Path | None):
        raise DataError(
            f"{task.name} is read from a folder, not from a {type(data).__name__}; rows of your own make "
            "a task such as Classification"
        )
    if task.reader is not None:
        return task.reader(task, data, split)
    return read_glue_hub(task, split) if data is None else read_glue(task, data, split)


def _check_arguments(
    against: Model | None,
    texts: Sequence[Text] | None,
    task: str | Task | None,
    data: Source | None,
    split: str | None,
    batch_size: int,
) -> None:
    if isinstance(texts, str):
        raise OctavoError("texts is a single string; give a list of texts, such as read_texts returns.")
    if batch_size < 1:
        raise OctavoError(f"batch_size is {batch_size}; it must be at least 1.")
    if task is None and (data is not None or split is not None):
        raise OctavoError("data and split belong to a task; name the task as well, such as glue/rte.")
    if task is not None and texts is not None:
        raise OctavoError("A task brings its own texts; give either a task, or against and texts.")
    if task is None and (against is None or texts is None):
        raise OctavoError("Give against and texts for fidelity, or a task such as glue/rte.")


def _check_comparable(model: Model, against: Model) -> None:
    if model.head != against.head:
        raise ModelError(
            f"{model.name} has the head {model.head}, {against.name} {against.head}; "
            "fidelity compares models with the same head."
        )
    missing = [name for name in against.inputs if name not in model.inputs]
    if missing:
        raise ModelError(
            f"{against.name} reads {', '.join(missing)}, which {model.name} has not; "
            "fidelity compares models that read the same inputs."
        )
    sizes = [getattr(each.config, "vocab_size", None) for each in (model, against)]
    if sizes[0] != sizes[1]:
        raise ModelError(
            f"{model.name} has {sizes[0]} token ids, {against.name} {sizes[1]}; "
            "fidelity compares models with the same tokenizer."
        )


def _check_head(model: Model, name: str, task: GlueTask) -> None:
    if name in SIMILARITY:
        if model.head != "encoder":
            raise ModelError(f"{name} needs a bare encoder; {model.name} has a {model.head} head.")
        return
    count = getattr(model.config, "num_labels", None)
    if model.head == "sequence-classification" and count in (None, task.outputs):
        return
    has = f"a {model.head} head with {count} labels" if model.head != "encoder" else "no head"
    kind = "1 label (regression)" if task.regression else f"{task.outputs} labels"
    raise ModelError(
        f"{name} needs a sequence-classification head with {kind}; {model.name} has {has}. "
        "Fine-tune it on the task first, or choose another model."
    )


def _logits(
    model: Model,
    examples: Examples,
    task: GlueTask,
    batch_size: int,
    progress: Progress,
    max_length: int | None,
) -> NDArray[np.float64]:
    """Return the logits (n, outputs) in the order of the examples."""
    logits = np.full((len(examples), task.outputs), np.nan)
    for indices, _, outputs in run(model, examples.texts, batch_size, progress, max_length):
        logits[indices] = outputs["logits"].detach().double().cpu().numpy()
    if not np.isfinite(logits).all():
        raise ModelError(f"Logits of {model.name} on {task.name} hold NaN or infinity.")
    return logits
