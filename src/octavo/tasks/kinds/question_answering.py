"""Extractive question answering: which part of a context answers a question."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch

from octavo.fidelity.spans import LONGEST, best_span
from octavo.tasks.examples import Examples
from octavo.tasks.kinds.labelling import TaskLabelled, span_loss, with_loss
from octavo.tasks.kinds.task import Running, Task, chosen_metrics, pick, source_name
from octavo.tasks.kinds.tokens import Window, encode_question, labelled_tokens, run_tokens
from octavo.tasks.model import Model
from octavo.tasks.reading.rows import Source
from octavo.tasks.reading.squad import Question, read_questions

if TYPE_CHECKING:
    from octavo.graph import Encoder

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, kw_only=True, eq=False)
class QuestionExamples(Examples):
    """Questions with their contexts; labels are tuples of answers, empty where there is none."""

    questions: tuple[Question, ...]

    def part(self, chosen: Sequence[int]) -> Self:
        """Return some of the questions."""
        return replace(super().part(chosen), questions=pick(self.questions, chosen))


@dataclass(frozen=True, kw_only=True)
class QuestionAnswering(Task, name="question-answering"):
    """Questions with a context and their answers: SQuAD's JSON, or rows with question, context and answers.

    Long contexts are read in windows of 384 tokens that overlap by 128. Where some questions have no answer
    (SQuAD 2), a model answers nothing if that scores higher.

    Arguments:
        longest: most tokens of an answer.
    """

    heads: ClassVar[tuple[str, ...]] = ("question-answering",)
    known_metrics: ClassVar[tuple[str, ...]] = ("f1", "exact")

    longest: int = LONGEST

    def _read(self, source: Source, split: str) -> QuestionExamples:
        questions = tuple(read_questions(source))
        return QuestionExamples(
            task=self.title,
            split=split,
            texts=tuple((question.question, question.context) for question in questions),
            labels=tuple(question.answers for question in questions),
            full=len(questions),
            source=source_name(source),
            where=tuple(question.where for question in questions),
            questions=questions,
        )

    def predict(self, model: Model, examples: QuestionExamples, running: Running) -> list[str]:
        """Return the answer to every question, empty where the model finds none."""
        windows = _windows(model, examples, running.max_length)
        may_be_empty = not all(examples.labels)
        best: dict[int, tuple[float, str]] = {}
        nothing: dict[int, float] = {}
        for indices, outputs in run_tokens(model, [window.tokens for window in windows], running):
            starts, ends = (outputs[f"{side}_logits"].double().cpu().numpy() for side in ("start", "end"))
            for row, index in enumerate(indices):
                window = windows[index]
                size = len(window.characters)
                start, end = starts[row, :size], ends[row, :size]
                allowed = np.asarray([place is not None for place in window.characters])
                found = best_span(start, end, allowed, self.longest)
                # as SQuAD's script has it: the window that says "nothing" least clearly counts
                empty = float(start[0] + end[0])
                nothing[window.example] = min(nothing.get(window.example, empty), empty)
                if found is not None and found[0] > best.get(window.example, (-np.inf, ""))[0]:
                    best[window.example] = found[0], _text(window, examples, found[1])
        answers = []
        for number in range(len(examples)):
            score, answer = best.get(number, (-np.inf, ""))
            answers.append("" if may_be_empty and nothing[number] > score else answer)
        return answers

    def measure(self, predicted: list[str], examples: QuestionExamples) -> dict[str, float]:
        """Return the F1 of words and the share of exact answers, of the best of each question's answers."""
        pairs = list(zip(predicted, examples.labels, strict=True))
        values = {
            "f1": float(
                np.mean([max(word_f1(said, a) for a in answers or ("",)) for said, answers in pairs])
            ),
            "exact": float(
                np.mean([max(exact(said, a) for a in answers or ("",)) for said, answers in pairs])
            ),
        }
        return chosen_metrics(self, values)

    def agreement(self, predicted: list[str], reference: list[str]) -> dict[str, float]:
        """Return the overlap of both models' answers in words, and the share that are the same."""
        pairs = list(zip(predicted, reference, strict=True))
        return {
            "spans": 100 * float(np.mean([word_f1(mine, theirs) for mine, theirs in pairs])),
            "agreement": 100 * float(np.mean([exact(mine, theirs) for mine, theirs in pairs])),
        }

    def output_labels(self, examples: QuestionExamples) -> tuple[str, ...]:
        """Return no names: the outputs are first and last token."""
        return ()

    def labelled(self, encoder: Encoder, examples: QuestionExamples, max_length: int) -> TaskLabelled:
        """Return windows, and first and last token of the answer in each, (n, 2); (0, 0) where it is not."""
        windows = _windows(encoder, examples, max_length)
        labels = torch.tensor([_span(window, examples.questions[window.example]) for window in windows])
        data = labelled_tokens(encoder, [window.tokens for window in windows], labels, max_length)
        return with_loss(data, span_loss)


def normalized(answer: str) -> str:
    """Return an answer as SQuAD compares it: lower case, without punctuation, articles and extra spaces."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_PUNCTUATION)).split())


def exact(said: str, answer: str) -> float:
    """Return 1 for the same answer, else 0."""
    return float(normalized(said) == normalized(answer))


def word_f1(said: str, answer: str) -> float:
    """Return the F1 of the words of two answers; two empty ones are equal."""
    mine, theirs = normalized(said).split(), normalized(answer).split()
    if not mine or not theirs:
        return float(mine == theirs)
    shared = sum((Counter(mine) & Counter(theirs)).values())
    return 2 * shared / (len(mine) + len(theirs))


def _windows(model: Model, examples: QuestionExamples, max_length: int | None) -> list[Window]:
    return [
        window
        for number, entry in enumerate(examples.questions)
        for window in encode_question(model, number, entry.question, entry.context, entry.where, max_length)
    ]


def _text(window: Window, examples: QuestionExamples, span: tuple[int, int]) -> str:
    first, last = window.characters[span[0]], window.characters[span[1]]
    assert first is not None and last is not None  # only tokens of the context are allowed
    return examples.questions[window.example].context[first[0] : last[1]].strip()


def _span(window: Window, question: Question) -> tuple[int, int]:
    """Return first and last token of the question's first answer; (0, 0) where the window lacks it."""
    if not question.answers or question.starts[0] < 0:
        return 0, 0
    begin = question.starts[0]
    end = begin + len(question.answers[0])
    inside = [
        token
        for token, place in enumerate(window.characters)
        if place is not None and place[0] < end and place[1] > begin
    ]
    places = [place for place in (window.characters[token] for token in inside) if place is not None]
    if not places or places[0][0] > begin or places[-1][1] < end:
        return 0, 0
    return inside[0], inside[-1]
