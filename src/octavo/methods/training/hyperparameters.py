"""Hyper-parameters of training, and the learning rate of every step."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from octavo.errors import SpecError


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """How a network is trained with Adam.

    Arguments:
        learning_rate: its maximum; it falls linearly to zero after the warm-up.
        batch_size: examples per step over all processes.
        warmup: share of the steps in which it rises linearly from zero.
        attention_dropout, hidden_dropout: None leaves what the model's configuration says.
        range_learning_rate: its maximum for learned ranges; None takes `learning_rate`.
        clip: largest norm of the network's gradient.
        keep: the parameters of the best epoch by score, or of the last.
        group_by_length: batches are drawn among texts of like length, which saves most of the padding.
    """

    learning_rate: float
    batch_size: int = 32
    epochs: int = 3
    warmup: float = 0.0
    attention_dropout: float | None = None
    hidden_dropout: float | None = None
    range_learning_rate: float | None = None
    max_length: int = 128
    clip: float = 1.0
    keep: Literal["best", "last"] = "best"
    group_by_length: bool = False

    def __post_init__(self) -> None:
        positive = ("learning_rate", "batch_size", "epochs", "max_length", "clip")
        for field in positive:
            if not getattr(self, field) > 0:
                raise SpecError(f"{field} must be positive, got {getattr(self, field)!r}")
        for field in ("batch_size", "epochs", "max_length"):
            if not isinstance(getattr(self, field), int):
                raise SpecError(f"{field} must be a whole number, got {getattr(self, field)!r}")
        for field in ("warmup", "attention_dropout", "hidden_dropout"):
            value = getattr(self, field)
            if value is not None and not 0 <= value < 1:
                raise SpecError(f"{field} must be at least 0 and below 1, got {value!r}")
        if self.keep not in ("best", "last"):
            raise SpecError(f"keep must be 'best' or 'last', got {self.keep!r}")

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of a step, counted from 0, as a share of its maximum."""
        rising = round(self.warmup * steps)
        if step < rising:
            return (step + 1) / rising
        return (steps - step) / max(1, steps - rising)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; what is younger than stored results is there only where it is used."""
        plain = asdict(self)
        if not self.group_by_length:
            del plain["group_by_length"]
        return plain
