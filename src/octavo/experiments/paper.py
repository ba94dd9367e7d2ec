"""The paper's hyper-parameters and ranges for each task of GLUE (appendix B).

Where it searched for them is `settings/paper-search.yaml`, and for ranges the table `range-estimators`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from octavo.experiments.ranges import Ranges
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


def _ranges(weights: str, activations: str, size: int, count: int) -> Ranges:
    return Ranges(weights=weights, activations=activations, batch_size=size, batches=count)


RANGES: Mapping[str, Ranges] = MappingProxyType(
    {
        "cola": _ranges("min-max", "running-min-max", 1, 4),
        "sst2": _ranges("mse", "running-min-max", 4, 16),
        "mrpc": _ranges("mse", "running-min-max", 16, 16),
        "stsb": _ranges("min-max", "running-min-max", 1, 16),
        "qqp": _ranges("min-max", "running-min-max", 16, 16),
        "mnli": _ranges("min-max", "running-min-max", 1, 16),
        "qnli": _ranges("min-max", "running-min-max", 1, 16),
        "rte": _ranges("mse", "min-max", 1, 1),
    }
)
"""The best ranges for W8A8 after training (appendix B.2), by the short names of tasks."""

OTHER_RANGES = _ranges("min-max", "running-min-max", 1, 16)
"""Ranges for tasks that the paper does not have: what it takes most often."""


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
