"""Answers in texts from an exported file: what `Embedder` is for embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import DataError
from octavo.runtime.classifier import softmax
from octavo.runtime.text_file import TextModel

_OVERLAP = 128


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A stretch of the context, context[start:end], and the probability of its two ends."""

    text: str
    start: int
    end: int
    score: float


class Reader(TextModel):
    """A model for extractive question answering that runs in integers; it needs no torch.

    >>> Reader("squad-int8.onnx").answer("Who wrote it?", "Ada Lovelace wrote the notes in 1843.")
    Answer(text='Ada Lovelace', start=0, end=12, score=0.97)
    """

    head, purpose, places = "question-answering", "answers questions", True

    def answer(self, question: str, context: str, max_tokens: int = 15) -> Answer:
        """Return the likeliest answer in a context, whole words of at most `max_tokens` tokens.

        A context that is too long is read in overlapping windows, and the likeliest answer of all is given.
        """
        if not question.strip() or not context.strip():
            raise DataError("a question and a context are needed; one of them is empty")
        windows = self._windows(question, context)
        batch = {name: windows[name] for name in self.file.tokenizer.model_input_names if name in windows}
        outputs = self.file.run(batch)
        best = [
            self._best(windows, row, outputs["start_logits"][row], outputs["end_logits"][row], max_tokens)
            for row in range(len(windows["input_ids"]))
        ]
        score, start, end = max(best)
        return Answer(text=context[start:end], start=start, end=end, score=score)

    def _windows(self, question: str, context: str) -> Any:
        tokenizer = self.file.tokenizer
        length = self.file.max_length
        asked = len(tokenizer.tokenize(question)) + tokenizer.num_special_tokens_to_add(pair=True)
        if asked >= length:
            raise DataError(
                f"the question takes {asked} of {length} tokens, which leaves none for the context"
            )
        return tokenizer(
            question,
            context,
            truncation="only_second",
            max_length=length,
            stride=min(_OVERLAP, (length - asked) // 2),
            padding=True,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_tensors="np",
        )

    def _best(
        self, windows: Any, row: int, starts: NDArray[Any], ends: NDArray[Any], max_tokens: int
    ) -> tuple[float, int, int]:
        """The best answer of one window: its probability, and where it stands in the context."""
        inside = np.array([part == 1 for part in windows.sequence_ids(row)])
        # the first token stands for "no answer": it takes its share of probability, but is no answer
        counted = inside | (windows["input_ids"][row] == self.file.tokenizer.cls_token_id)
        first, last = (softmax(np.where(counted, logits, -np.inf)) * inside for logits in (starts, ends))
        pairs = np.triu(np.outer(first, last)) - np.triu(np.outer(first, last), max_tokens)
        start, end = np.unravel_index(int(pairs.argmax()), pairs.shape)
        left, right = self._words(windows, row, int(start), int(end))
        return float(pairs[start, end]), left, right

    def _words(self, windows: Any, row: int, start: int, end: int) -> tuple[int, int]:
        """Where an answer stands in the context, widened to whole words where the tokenizer knows them."""
        encoding = windows.encodings[row]
        words = encoding.token_to_word(start), encoding.token_to_word(end)
        if None in words:
            return int(encoding.offsets[start][0]), int(encoding.offsets[end][1])
        left, right = (encoding.word_to_chars(word, 1) for word in words)
        return int(left[0]), int(right[1])
