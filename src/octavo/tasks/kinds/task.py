"""What every kind of task says of itself: which heads fit it, how it is read, scored and trained.

A kind is one frozen type. It carries where its data is and what its columns mean, so that one object, or one
small YAML file, is the whole task:

    Classification(train="reviews.csv", dev="test.csv", text="review", label="stars")

`octavo.tasks.score_task` evaluates by `check_model → read → predict → measure`; training asks for `labelled`,
whose `loss` it minimises, and for `output_labels`, by which a new head is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from octavo.errors import DataError, ModelError, SpecError, did_you_mean
from octavo.progress import Progress, silent
from octavo.spec.variant import Variant
from octavo.tasks.examples import Examples
from octavo.tasks.model import Model
from octavo.tasks.reading.rows import Source

if TYPE_CHECKING:
    from octavo.graph import Encoder
    from octavo.methods.training.examples import Examples as TrainingExamples

T = TypeVar("T")
TRAIN, DEV = "train", "dev"
SPLITS = (TRAIN, DEV)


@dataclass(frozen=True, kw_only=True)
class Running:
    """How a model is run over a task's texts: none of this changes what is asked."""

    batch_size: int = 32
    max_length: int | None = None
    progress: Progress = silent


@dataclass(frozen=True, kw_only=True)
class Task(Variant, family="kind of task"):
    """The base of all kinds.

    Arguments:
        name: what the task is called in tables; the kind if left out.
        train, dev: what is trained on and what scores are given for: files, or rows in memory.
        holdout: share of `train` that is held out where `dev` is not given; equal texts stay together.
        metrics: which of the kind's metrics are given; the first is the score. All if left out.
    """

    heads: ClassVar[tuple[str, ...]]
    """The heads that the kind fits."""
    known_metrics: ClassVar[tuple[str, ...]]
    """The metrics of the kind, its score first; all are times 100."""

    name: str = ""
    train: Source | None = None
    dev: Source | None = None
    holdout: float = 0.1
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.holdout < 1:
            raise SpecError(f"holdout must be between 0 and 1, got {self.holdout!r}")
        for metric in self.metrics:
            if metric not in self.known_metrics:
                known = ", ".join(self.known_metrics)
                hint = did_you_mean(metric, self.known_metrics)
                raise SpecError(f"{self.variant_name} has no metric {metric!r}: there are {known}{hint}")

    @property
    def title(self) -> str:
        """What the task is called."""
        return self.name or self.variant_name

    @property
    def shown_metrics(self) -> tuple[str, ...]:
        """The metrics to give, the score first."""
        return self.metrics or self.known_metrics

    # -- evaluation ------------------------------------------------------------------------------------------

    def check_model(self, model: Model) -> None:
        """Refuse a model whose head does not fit, in a sentence that says what would."""
        if model.head not in self.heads:
            has = "no head" if model.head == "encoder" else f"a {model.head} head"
            needed = " or ".join(
                "no head (an embedding model)" if h == "encoder" else f"a {h} head" for h in self.heads
            )
            raise ModelError(f"{self.title} needs {needed}; {model.name} has {has}")

    def read(self, split: str = DEV) -> Examples:
        """Return the examples of `train` or `dev`; `dev` may be what is held out of `train`."""
        if split not in SPLITS:
            raise DataError(f"{self.title} has no split {split!r}; choose {' or '.join(SPLITS)}")
        if split == DEV and self.dev is not None:
            return self._read(self.dev, split)
        if self.train is None:
            raise DataError(f"{self.title} has no data for {split}; give it a file (--data), or rows")
        return self._part(split) if self.dev is None else self._read(self.train, split)

    def check_labels(self, model: Model, examples: Any) -> None:
        """Refuse a label that no output of the model stands for; for numbers and ranks there is none."""

    def predict(self, model: Model, examples: Any, running: Running) -> Any:
        """Return the model's answers, in the form that `measure` and `agreement` of this kind take."""
        raise NotImplementedError

    def measure(self, predicted: Any, examples: Any) -> dict[str, float]:
        """Return the metrics of answers, times 100, the score first."""
        raise NotImplementedError

    def agreement(self, predicted: Any, reference: Any) -> dict[str, float]:
        """Return how far the answers of two models agree, times 100, without a look at labels."""
        raise NotImplementedError

    # -- training --------------------------------------------------------------------------------------------

    def output_labels(self, examples: Any) -> tuple[str, ...]:
        """Return the names of a new head's outputs; none for numbers."""
        raise NotImplementedError

    def labelled(self, encoder: Encoder, examples: Any, max_length: int) -> TrainingExamples:
        """Return examples as training takes them: tokens, labels, and the loss of outputs and labels."""
        raise NotImplementedError

    # -- for the kinds ---------------------------------------------------------------------------------------

    def _read(self, source: Source, split: str) -> Examples:
        raise NotImplementedError

    def _part(self, split: str) -> Examples:
        """Return the side of `train` that a split is, where nothing else is given."""
        whole = self._read(self.train, split)
        held = [held_out(text, self.holdout) for text in whole.together]
        chosen = [index for index, out in enumerate(held) if out == (split == DEV)]
        if not chosen:
            raise DataError(
                f"{whole.source} has {len(whole)} examples, of which {split} would get none; "
                f"give a file for dev, or another holdout than {self.holdout:g}"
            )
        return whole.part(chosen)


def held_out(text: object, share: float) -> bool:
    """Return whether a text belongs to what is held out: by its content, whatever stands around it."""
    digest = hashlib.sha256(repr(text).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < share


def chosen_metrics(task: Task, values: dict[str, float]) -> dict[str, float]:
    """Return those of the values (0 to 1) that a task gives, times 100, in its order."""
    return {name: 100 * values[name] for name in task.shown_metrics if name in values}


def natural_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Return different labels in the order of their numbers where all are numbers, else of the alphabet.

    >>> natural_order(["10", "9", "9"]), natural_order(["b", "a"])
    (('9', '10'), ('a', 'b'))
    """
    names = set(labels)
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(sorted(names))


def pick(items: Sequence[T], chosen: Sequence[int]) -> tuple[T, ...]:
    """Return some of the items."""
    return tuple(items[index] for index in chosen)


def source_name(source: Source) -> str:
    """Return the file's name, or what the rows are."""
    return Path(source).name if isinstance(source, str | Path) else type(source).__name__
