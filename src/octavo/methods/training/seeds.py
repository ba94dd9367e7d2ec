"""Fine-tuning by several seeds, of which the median is kept (appendix B.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from octavo.graph import Encoder
from octavo.methods.training.checkpoint import checkpoint_beside
from octavo.methods.training.examples import Examples
from octavo.methods.training.finetuning import finetune, own_copy
from octavo.methods.training.head import new_head
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.loop import RunOptions, TrainingResult
from octavo.progress import part_of

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, eq=False)
class SeedRun:
    """A model that was fine-tuned with one seed, and its score."""

    seed: int
    score: float
    encoder: Encoder
    result: TrainingResult


def finetune_seeds(
    encoder: Encoder,
    data: Examples,
    hyper: Hyperparameters,
    *,
    seeds: Sequence[int],
    score: Callable[[Encoder], float],
    output: Path | None = None,
    options: RunOptions | None = None,
) -> list[SeedRun]:
    """Fine-tune a copy of an encoder, with a head of its own, for every seed.

    Arguments:
        score: a function of the model, asked after every epoch and at the end.
        output: where the result will be saved; every seed has its checkpoint beside it.
        options: for every run; its progress counts the steps of all seeds.
    """
    options = options or RunOptions()
    runs = []
    for index, seed in enumerate(seeds):
        copied = own_copy(encoder)
        if encoder.head != "encoder":  # a bare encoder has none
            new_head(copied, seed)
        checkpoint = options.checkpoint if output is None else checkpoint_beside(output, seed)
        progress = part_of(options.progress, index, len(seeds))
        result = finetune(
            copied,
            data,
            hyper,
            seed=seed,
            score=lambda copied=copied: score(copied),  # type: ignore[misc]
            options=replace(options, checkpoint=checkpoint, progress=progress),
        )
        runs.append(SeedRun(seed=seed, score=score(copied), encoder=copied, result=result))
    return runs


def median_by(score: Callable[[T], float], runs: Iterable[T]) -> T:
    """Return the run with the median score; of an even number the lower of the two in the middle.

    >>> median_by(len, ["aaa", "a", "aaaa", "aa"])
    'aa'
    """
    ordered = sorted(runs, key=score)
    return ordered[(len(ordered) - 1) // 2]
