"""The kinds of tasks that users bring: one frozen type each."""

from __future__ import annotations

from octavo.tasks.kinds.classification import Classification as Classification
from octavo.tasks.kinds.multi_label import MultiLabel as MultiLabel
from octavo.tasks.kinds.question_answering import QuestionAnswering as QuestionAnswering
from octavo.tasks.kinds.regression import Regression as Regression
from octavo.tasks.kinds.reranking import Reranking as Reranking
from octavo.tasks.kinds.retrieval import Retrieval as Retrieval
from octavo.tasks.kinds.similarity import Similarity as Similarity
from octavo.tasks.kinds.task import Running as Running
from octavo.tasks.kinds.task import Task as Task
from octavo.tasks.kinds.token_classification import TokenClassification as TokenClassification
