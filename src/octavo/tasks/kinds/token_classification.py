"""Token classification: a tag for every word, scored by the entities that the tags name."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
import torch

from octavo.errors import OctavoWarning, SpecError
from octavo.fidelity.entities import EntityTally, names_entities
from octavo.tasks.examples import Examples
from octavo.tasks.kinds.labelling import IGNORED, TaskLabelled, token_loss, with_loss
from octavo.tasks.kinds.outputs import class_names, model_labels
from octavo.tasks.kinds.task import Running, Task, chosen_metrics, pick, source_name
from octavo.tasks.kinds.tokens import encode_words, labelled_tokens, run_tokens
from octavo.tasks.model import Model
from octavo.tasks.reading.conll import read_tagged
from octavo.tasks.reading.rows import Source

if TYPE_CHECKING:
    from octavo.graph import Encoder

Tags = list[list[str]]


@dataclass(frozen=True, kw_only=True, eq=False)
class TaggedExamples(Examples):
    """Sentences as words; labels are tuples of tags, one for each word."""

    words: tuple[tuple[str, ...], ...]

    def part(self, chosen: Sequence[int]) -> Self:
        """Return some of the sentences."""
        return replace(super().part(chosen), words=pick(self.words, chosen))


@dataclass(frozen=True, kw_only=True)
class TokenClassification(Task, name="token-classification"):
    """A tag for every word: CoNLL files, or rows with a list of words and a list of tags.

    A word's tag is that of its first token. Where tags name entities (B-PER, I-PER), the score is the F1 of
    whole entities, equal to seqeval's; tags such as NOUN have an accuracy alone.

    Arguments:
        text, label: the columns of words and of tags, for rows; those usual if left out.
        labels: the tags in the order of the model's outputs, for a model that does not name them.
    """

    heads: ClassVar[tuple[str, ...]] = ("token-classification",)
    known_metrics: ClassVar[tuple[str, ...]] = ("f1", "precision", "recall", "accuracy")

    text: str = ""
    label: str = ""
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.text, str) or not isinstance(self.label, str):
            raise SpecError("token-classification has one column of words and one of tags")

    def check_labels(self, model: Model, examples: TaggedExamples) -> None:
        """Refuse a tag that no output stands for."""
        self._names(model, examples)

    def _read(self, source: Source, split: str) -> TaggedExamples:
        sentences = read_tagged(source, self.text, self.label)
        return TaggedExamples(
            task=self.title,
            split=split,
            texts=tuple(" ".join(sentence.words) for sentence in sentences),
            labels=tuple(sentence.tags for sentence in sentences),
            full=len(sentences),
            source=source_name(source),
            where=tuple(sentence.where for sentence in sentences),
            words=tuple(sentence.words for sentence in sentences),
        )

    def predict(self, model: Model, examples: TaggedExamples, running: Running) -> Tags:
        """Return the tag of every word; words beyond the model's length are tagged O."""
        names = self._names(model, examples)
        encoded = [encode_words(model, words, running.max_length) for words in examples.words]
        firsts = [sentence.first_tokens() for sentence in encoded]
        _warn_of_cut(examples, firsts)
        tags = [["O"] * len(words) for words in examples.words]
        for indices, outputs in run_tokens(model, [sentence.tokens for sentence in encoded], running):
            best = outputs["logits"].argmax(-1).cpu().numpy()
            for row, index in enumerate(indices):
                for word, token in firsts[index].items():
                    tags[index][word] = names[int(best[row, token])]
        return tags

    def measure(self, predicted: Tags, examples: TaggedExamples) -> dict[str, float]:
        """Return F1, precision and recall of entities, and the share of right tags."""
        values = {"accuracy": _equal(predicted, examples.labels)}
        if names_entities(tag for tags in examples.labels for tag in tags):
            tally = _tally(predicted, examples.labels)
            values |= {"f1": tally.f1, "precision": tally.precision, "recall": tally.recall}
        return chosen_metrics(self, values)

    def agreement(self, predicted: Tags, reference: Tags) -> dict[str, float]:
        """Return the F1 of the entities that both name, and the share of equal tags."""
        tags = {"agreement": 100 * _equal(predicted, reference)}
        if not names_entities(tag for tags in [*predicted, *reference] for tag in tags):
            return tags
        return {"entities": 100 * _tally(predicted, reference).f1, **tags}

    def output_labels(self, examples: TaggedExamples) -> tuple[str, ...]:
        """Return the tags in order, O first."""
        found = class_names((tag for tags in examples.labels for tag in tags), examples.source, "tags")
        return self.labels or tuple(sorted(found, key=lambda tag: tag != "O"))

    def labelled(self, encoder: Encoder, examples: TaggedExamples, max_length: int) -> TaskLabelled:
        """Return tokens and, for the first token of every word, the index of its tag, (n, longest)."""
        names = self._names(encoder, examples)
        encoded = [encode_words(encoder, words, max_length) for words in examples.words]
        width = max(len(sentence.words) for sentence in encoded)
        labels = np.full((len(encoded), width), IGNORED, dtype=np.int64)
        for row, sentence in enumerate(encoded):
            for word, token in sentence.first_tokens().items():
                labels[row, token] = names.index(examples.labels[row][word])
        items = [sentence.tokens for sentence in encoded]
        data = labelled_tokens(encoder, items, torch.from_numpy(labels), max_length)
        return with_loss(data, token_loss, per_token=True)

    def _names(self, model: Model, examples: TaggedExamples) -> tuple[str, ...]:
        sentences = zip(examples.labels, examples.words, examples.where, strict=True)
        tagged = [
            (tag, f"{place}, word {word!r}")
            for tags, words, place in sentences
            for tag, word in zip(tags, words, strict=True)
        ]
        return model_labels(model, self.labels, [tag for tag, _ in tagged], [place for _, place in tagged])


def _warn_of_cut(examples: TaggedExamples, firsts: Sequence[dict[int, int]]) -> None:
    cut = [index for index, words in enumerate(examples.words) if len(words) - 1 not in firsts[index]]
    if cut:
        warnings.warn(
            f"{len(cut)} of {len(examples)} sentences are longer than the model reads; what was cut off "
            f"counts as tagged O (the first: {examples.where[cut[0]]})",
            OctavoWarning,
            stacklevel=3,
        )


def _tally(predicted: Sequence[Sequence[str]], reference: Sequence[Sequence[str]]) -> EntityTally:
    tally = EntityTally()
    for mine, theirs in zip(predicted, reference, strict=True):
        tally.add(mine, theirs)
    return tally


def _equal(predicted: Sequence[Sequence[str]], reference: Sequence[Sequence[str]]) -> float:
    pairs = [
        (a, b)
        for mine, theirs in zip(predicted, reference, strict=True)
        for a, b in zip(mine, theirs, strict=True)
    ]
    return sum(a == b for a, b in pairs) / len(pairs)
