from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from octavo.errors import DataError
from octavo.graph import Encoder
from octavo.methods import load
from octavo.tasks import QuestionAnswering, evaluate
from octavo.tasks.kinds.question_answering import exact, word_f1
from octavo.tasks.kinds.task import Running

CONTEXT = "anna lives in rome. she is a baker, and her house is near the river."
ROWS = [
    {"question": "who?", "context": CONTEXT, "answers": {"text": ["anna"], "answer_start": [0]}},
    {
        "question": "where?",
        "context": CONTEXT,
        "answers": {"text": ["rome", "in rome"], "answer_start": [14, 11]},
    },
]
TASK = QuestionAnswering(dev=ROWS)


@pytest.fixture(scope="module")
def reader(tiny_bert_folder: Callable[..., Path]) -> Encoder:
    return load(tiny_bert_folder("BertForQuestionAnswering"))


@pytest.mark.parametrize(
    ("said", "answer", "f1", "same"),
    [
        ("The Rome", "rome!", 1, True),
        ("in the old town", "old town", 4 / 5, False),
        ("a b b", "b b c", 4 / 5, False),  # "a" is an article
        ("b b b", "b c", 2 / 5, False),
        ("x y", "z", 0, False),
        ("", "x", 0, False),
        ("", "", 1, True),
        ("U.S.", "us", 1, True),
    ],
)
def test_answers_are_compared_as_squad_does(said: str, answer: str, f1: float, same: bool) -> None:
    assert word_f1(said, answer) == word_f1(answer, said) == pytest.approx(f1)
    assert exact(said, answer) == same


def test_an_answer_is_the_best_span_of_the_context(reader: Encoder) -> None:
    found = TASK.predict(reader, TASK.read(), Running(max_length=64))
    for row, answer in zip(ROWS, found, strict=True):
        assert answer and answer in CONTEXT
        encoded = reader.tokenizer(row["question"], CONTEXT, return_offsets_mapping=True, return_tensors="pt")  # type: ignore[misc]
        if encoded["input_ids"].shape[1] > 64:
            continue
        places = encoded.pop("offset_mapping")[0].tolist()
        outputs = reader(dict(encoded))
        start, end = outputs["start_logits"][0], outputs["end_logits"][0]
        inside = [token for token, part in enumerate(encoded.sequence_ids()) if part == 1]
        every = {(s, e): float(start[s] + end[e]) for s in inside for e in inside if s <= e < s + 30}
        first, last = max(every, key=every.__getitem__)
        assert answer == CONTEXT[places[first][0] : places[last][1]]


def test_long_contexts_are_read_in_windows(reader: Encoder) -> None:
    row = {"question": "who?", "context": " ".join([CONTEXT] * 6), "answers": ["anna"]}
    task = QuestionAnswering(dev=[row])
    windows = task.labelled(reader, task.read(), 64)
    assert len(windows) > 4 and windows.labels.shape == (len(windows), 2)
    assert evaluate(reader, task=task).examples == 1


def test_a_model_may_answer_nothing_where_some_questions_have_no_answer(reader: Encoder) -> None:
    empty = {"question": "why?", "context": CONTEXT, "answers": {"text": [], "answer_start": []}}
    task = QuestionAnswering(dev=[*ROWS, empty])
    found = task.predict(reader, task.read(), Running(max_length=64))
    metrics = task.measure(["anna", "in Rome", ""], task.read())
    assert len(found) == 3 and metrics == {"f1": 100.0, "exact": 100.0}


def test_agreement_is_the_overlap_of_answers(reader: Encoder) -> None:
    assert evaluate(reader, task=TASK, against=reader, max_length=64).agreement == {
        "spans": 100.0,
        "agreement": 100.0,
    }
    assert TASK.agreement(["the old town", "x"], ["old town", "y"])["spans"] == pytest.approx(50.0)
    assert TASK.agreement(["old", "x"], ["old town", "y"])["spans"] == pytest.approx(100 / 3)


def test_training_learns_first_and_last_token(reader: Encoder) -> None:
    task = QuestionAnswering(dev=[{"question": "q", "context": "ab cd", "answers": ["cd"]}])
    data = task.labelled(reader, task.read(), 64)
    tokens = reader.tokenizer.convert_ids_to_tokens(data.inputs[0][0])  # type: ignore[union-attr]
    first, last = data.labels[0].tolist()
    assert tokens[first : last + 1] == ["c", "##d"]
    inputs, labels = data.batch(torch.arange(1), data.width(torch.arange(1)))
    with torch.no_grad():
        start, end = reader.graph(*inputs)
    loss = torch.nn.functional.cross_entropy
    expected = (loss(start, labels[:, 0]) + loss(end, labels[:, 1])) / 2
    assert float(data.loss((start, end), inputs, labels)) == pytest.approx(float(expected))


def test_a_question_that_leaves_no_room_is_an_error(reader: Encoder) -> None:
    task = QuestionAnswering(dev=[{"question": "why " * 40, "context": "ab", "answers": ["ab"]}])
    with pytest.raises(DataError, match="row 1: the question leaves no room for a context in 64 tokens"):
        evaluate(reader, task=task)


@pytest.mark.parametrize("words", [19, 20])
def test_a_question_may_leave_as_little_as_one_token(reader: Encoder, words: int) -> None:
    task = QuestionAnswering(dev=[{"question": "why " * words, "context": "abcdef", "answers": ["ab"]}])
    assert evaluate(reader, task=task).examples == 1  # of 64 tokens, 63 are the question's and special ones


def test_what_else_a_tokenizer_complains_of_is_not_taken_for_a_long_question(
    reader: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the tokenizer is broken")

    monkeypatch.setattr(type(reader.tokenizer), "__call__", fail)
    task = QuestionAnswering(dev=[{"question": "why", "context": "ab", "answers": ["ab"]}])
    with pytest.raises(RuntimeError, match="the tokenizer is broken"):
        evaluate(reader, task=task)
