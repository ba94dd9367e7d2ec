from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import octavo
from octavo.errors import DataError
from octavo.runtime.exporting import export
from octavo.runtime.reader import Reader

QUESTION, CONTEXT = "who barks?", "the dog barks. a cat sleeps on the mat."


@pytest.fixture(scope="module")
def folder(tiny_bert_folder: Callable[..., Path]) -> Path:
    return tiny_bert_folder("BertForQuestionAnswering", initializer_range=0.5)


@pytest.fixture(scope="module")
def reader(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    return Reader(export(octavo.load(folder), tmp_path_factory.mktemp("reader") / "m.onnx"), folder)


def best_span(folder: Path, question: str, context: str, longest: int) -> tuple[float, int, int]:
    """Try every pair of ends, with Hugging Face's own model."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(question, context, return_tensors="pt")
    with torch.no_grad():
        outputs = transformers.BertForQuestionAnswering.from_pretrained(folder).eval()(**batch)
    parts = batch.sequence_ids(0)
    allowed = [0, *(i for i, part in enumerate(parts) if part == 1)]
    starts, ends = ({i: float(np.exp(float(x[0, i]))) for i in allowed} for x in outputs.to_tuple()[:2])
    return max(
        (starts[i] / sum(starts.values()) * ends[j] / sum(ends.values()), i, j)
        for i in allowed[1:]
        for j in allowed[1:]
        if i <= j < i + longest
    )


@pytest.mark.parametrize("longest", [15, 1])
def test_the_answer_is_the_likeliest_span_of_words(folder: Path, reader: Reader, longest: int) -> None:
    score, start, end = best_span(folder, QUESTION, CONTEXT, longest)
    found = reader.answer(QUESTION, CONTEXT, max_tokens=longest)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    offsets = tokenizer(QUESTION, CONTEXT, return_offsets_mapping=True)["offset_mapping"]
    assert found.score == pytest.approx(score, abs=1e-4)
    assert found.start <= offsets[start][0] and offsets[end][1] <= found.end
    assert found.text == CONTEXT[found.start : found.end]
    # a letter is a token here, so whole words show that the answer was widened
    assert (CONTEXT[: found.start] + " ")[-1] == " " or found.start == 0 or found.text in ".,"


def test_a_long_context_is_read_in_windows(folder: Path, reader: Reader) -> None:
    context = " ".join([CONTEXT] * 6)
    found = reader.answer(QUESTION, context)
    assert 0 <= found.start < found.end <= len(context)
    assert found.text == context[found.start : found.end]


def test_a_question_without_room_or_words_is_refused(reader: Reader) -> None:
    with pytest.raises(DataError, match=r"the question takes \d+ of 64 tokens"):
        reader.answer("why " * 30, CONTEXT)
    with pytest.raises(DataError, match="one of them is empty"):
        reader.answer(" ", CONTEXT)
