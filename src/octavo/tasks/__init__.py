"""Data sets, metrics and evaluation: the only place that reads data sets."""

from __future__ import annotations

from octavo.fidelity import Fidelity
from octavo.numerics.metrics import METRICS, accuracy, f1, matthews, pearson, spearman
from octavo.progress import Progress
from octavo.tasks.evaluation import (
    Evaluation,
    compare,
    evaluate,
    read_examples,
    score_task,
)
from octavo.tasks.examples import Examples
from octavo.tasks.glue import GLUE, GlueTask, Split, glue_task, measure, predictions
from octavo.tasks.glue_files import read_glue
from octavo.tasks.hub import read_glue_hub
from octavo.tasks.kinds import (
    Classification,
    MultiLabel,
    QuestionAnswering,
    Regression,
    Reranking,
    Retrieval,
    Similarity,
    Task,
    TokenClassification,
)
from octavo.tasks.labels import label_mapping
from octavo.tasks.model import Model
from octavo.tasks.similarity import SIMILARITY, embed_texts, similarity_metrics
from octavo.tasks.task_file import TASKS, find_task, read_task_file
from octavo.tasks.texts import Text, read_texts

__all__ = [
    "GLUE",
    "METRICS",
    "SIMILARITY",
    "TASKS",
    "Classification",
    "Evaluation",
    "Examples",
    "Fidelity",
    "GlueTask",
    "Model",
    "MultiLabel",
    "Progress",
    "QuestionAnswering",
    "Regression",
    "Reranking",
    "Retrieval",
    "Similarity",
    "Split",
    "Task",
    "Text",
    "TokenClassification",
    "accuracy",
    "compare",
    "embed_texts",
    "evaluate",
    "f1",
    "find_task",
    "glue_task",
    "label_mapping",
    "matthews",
    "measure",
    "pearson",
    "predictions",
    "read_examples",
    "read_glue",
    "read_glue_hub",
    "read_task_file",
    "read_texts",
    "score_task",
    "similarity_metrics",
    "spearman",
]
