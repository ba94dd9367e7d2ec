"""Questions about a context with their answers: SQuAD's JSON, and rows laid out as the hub has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

from octavo.errors import DataError
from octavo.tasks.reading.rows import Row, Source, read_json, read_rows


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question: answers are texts of the context, none where it has no answer.

    starts are the characters at which the answers begin; -1 where a file does not say.
    """

    question: str
    context: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]
    where: str


def read_questions(source: Source) -> list[Question]:
    """Return the questions of a file in SQuAD's layout, or of rows with question, context and answers."""
    if isinstance(source, str | Path) and Path(source).suffix.lower() == ".json":
        document = read_json(Path(source))
        if isinstance(document, Mapping) and "data" in document:
            questions = list(_from_squad(document, str(source)))
            if not questions:
                raise DataError(f"{source} holds no questions; check data, paragraphs and qas")
            return questions
    return [_from_row(row) for row in read_rows(source)]


def _from_squad(document: Mapping[str, Any], where: str) -> Iterator[Question]:
    try:
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                for entry in paragraph["qas"]:
                    answers = [] if entry.get("is_impossible") else entry["answers"]
                    yield _question(
                        entry["question"],
                        paragraph["context"],
                        [answer["text"] for answer in answers],
                        [answer.get("answer_start") for answer in answers],
                        f"{where}, question {entry.get('id', entry['question'])!r}",
                    )
    except (KeyError, TypeError, AttributeError) as error:
        what = f": {error} is missing" if isinstance(error, KeyError) else ""
        raise DataError(
            f"{where} is not laid out as SQuAD{what}; it has data, in it paragraphs with a "
            "context and qas, and in those question and answers with text and answer_start"
        ) from None


def _from_row(row: Row) -> Question:
    given = row["answers"]
    if isinstance(given, Mapping):
        texts, starts = given.get("text"), given.get("answer_start")
    else:
        texts, starts = [given] if isinstance(given, str) else given, None
    texts, starts = _listed(texts), _listed(starts)
    if texts is None:
        raise DataError(
            f"{row.where}: column 'answers' needs text and answer_start, both lists, or a list of texts"
        )
    if starts is None:
        starts = [None] * len(texts)
    if len(starts) != len(texts):
        raise DataError(
            f"{row.where}: {len(texts)} answers and {len(starts)} places in answer_start; give one for each"
        )
    return _question(row.text("question"), row.text("context"), texts, starts, row.where)


def _listed(value: Any) -> list[Any] | None:
    """Return a list, a tuple or an array as a list; None for anything else."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    return list(value) if isinstance(value, list | tuple) else None


def _question(question: Any, context: Any, answers: list[Any], starts: list[Any], where: str) -> Question:
    for name, text in (("question", question), ("context", context)):
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{where}: the {name} is empty; fill it in, or drop the question")
    odd = next((answer for answer in answers if not isinstance(answer, str) or not answer.strip()), None)
    if odd is not None or None in answers:
        raise DataError(
            f"{where}: an answer is {odd!r}; give its text, or no answers where the context has none"
        )
    found = [_start(context, answer, start, where) for answer, start in zip(answers, starts, strict=True)]
    return Question(
        question=question, context=context, answers=tuple(answers), starts=tuple(found), where=where
    )


def _start(context: str, answer: str, start: Any, where: str) -> int:
    """Return where an answer begins; without a number, or with -1, where it occurs first."""
    if start is None or start == -1:
        return context.find(answer)
    place = int(start) if isinstance(start, Integral) else -1
    if place < 0 or context[place : place + len(answer)] != answer:
        raise DataError(
            f"{where}: the answer {answer!r} does not stand at character {start} of its context; "
            "check answer_start"
        )
    return place
