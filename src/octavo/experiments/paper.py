"""The paper's hyper-parameters for each task of GLUE (appendix B), and where it searches for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import Any

from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.spec import Recipe

# Ranges that outliers have stretched must shrink by several times within some hundred steps, which a
# network's own learning rate does not allow: on all-MiniLM-L6-v2, W8A8, 60 steps of distillation raise the
# cosine to FP32 from 0.836 to 0.891 with 1e-4 for the ranges, to 0.912 with 3e-3 and to 0.943 with 1e-2.
# The paper does not name its rate.
RANGE_LEARNING_RATE = 1e-2


def _table(
    rows: Mapping[str, tuple[float, int, int, float | None]], warmup: float, ranges: float | None = None
) -> Mapping[str, Hyperparameters]:
    return MappingProxyType(
        {
            f"glue/{task}": Hyperparameters(
                learning_rate=rate,
                batch_size=batch,
                epochs=epochs,
                attention_dropout=dropout,
                warmup=warmup,
                range_learning_rate=ranges,
            )
            for task, (rate, batch, epochs, dropout) in rows.items()
        }
    )


# task: learning rate, batch size, epochs, dropout of attention (None: the model's own)
FINETUNING = _table(
    {
        "cola": (2e-5, 32, 3, None),
        "sst2": (2e-5, 16, 3, None),
        "mrpc": (5e-5, 8, 3, None),
        "stsb": (4e-5, 32, 3, None),
        "qqp": (4e-5, 64, 3, None),
        "mnli": (2e-5, 16, 3, None),
        "qnli": (2e-5, 32, 3, None),
        "rte": (3e-5, 8, 3, None),
        "wnli": (3e-5, 8, 3, None),
    },
    warmup=0.0,
)
"""FP32 fine-tuning of BERT-base (appendix B.1); WNLI, which the paper leaves out, is treated as RTE."""

QAT_8_BITS = _table(
    {
        "cola": (2e-5, 16, 3, 0.0),
        "sst2": (2e-5, 32, 3, 0.1),
        "mrpc": (1e-5, 8, 3, 0.1),
        "stsb": (4e-5, 16, 6, 0.1),
        "qqp": (4e-5, 32, 3, 0.1),
        "mnli": (2e-5, 16, 3, 0.1),
        "qnli": (3e-5, 32, 3, 0.0),
        "rte": (3e-5, 8, 6, 0.1),
        "wnli": (3e-5, 8, 6, 0.1),
    },
    warmup=0.1,
    ranges=RANGE_LEARNING_RATE,
)
"""W8A8 quantization-aware training (appendix B.3)."""

QAT_4_BITS = _table(
    {
        "cola": (2e-5, 16, 3, None),
        "sst2": (3e-5, 32, 3, None),
        "mrpc": (2e-5, 8, 3, None),
        "stsb": (6e-5, 32, 6, None),
        "qqp": (5.5e-5, 32, 3, None),
        "mnli": (4e-5, 16, 3, None),
        "qnli": (2e-5, 16, 3, None),
        "rte": (5e-5, 8, 6, None),
        "wnli": (5e-5, 8, 6, None),
    },
    warmup=0.1,
    ranges=RANGE_LEARNING_RATE,
)
"""Quantization-aware training with low-bit weights (appendix B.4)."""

SEARCH: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {"learning_rate": (2e-5, 3e-5, 4e-5, 5e-5), "batch_size": (8, 16, 32, 64)}
)
"""Where appendix B.1 searches; the bigger tasks (QQP, MNLI, QNLI) only with batches of 32 and 64."""


def finetuning_defaults(task: str) -> Hyperparameters:
    """Return the paper's hyper-parameters for FP32 fine-tuning on a task."""
    return FINETUNING.get(task, Hyperparameters(learning_rate=2e-5))


def qat_defaults(task: str, recipe: Recipe) -> Hyperparameters:
    """Return the paper's hyper-parameters for training a recipe: its table depends on the bits of weights."""
    low = recipe.weights is not None and recipe.weights.bits < 8
    table = QAT_4_BITS if low else QAT_8_BITS
    return table.get(
        task, Hyperparameters(learning_rate=2e-5, warmup=0.1, range_learning_rate=RANGE_LEARNING_RATE)
    )


def search_space(
    start: Hyperparameters, space: Mapping[str, tuple[float, ...]] = SEARCH
) -> Iterator[Hyperparameters]:
    """Yield every combination of a search space, the rest as in `start`."""
    for values in product(*space.values()):
        changes: dict[str, Any] = dict(zip(space, values, strict=True))
        yield replace(start, **changes)
