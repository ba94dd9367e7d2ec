"""Settings of distillation: what is learned, on which losses, and for how long."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from octavo.errors import SpecError
from octavo.methods.training.hyperparameters import Hyperparameters

Learn = Literal["all", "ranges", "weights"]
_LEARN = ("all", "ranges", "weights")
_WEIGHTS = ("relation", "tokens", "hidden", "attention")


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """How a quantized model learns from its float model, with Adam.

    The error of the outputs always counts: the cosine distance of embeddings, the KL divergence of logits
    (of each token, of each place of a span). What is added has weights of its own:

    Arguments:
        learn: weights and ranges ("all"; ranges do what the recipe's training says), ranges alone (weights
            stay as they were rounded), or weights alone.
        learning_rate: maximum for weights; it falls linearly to zero after the warm-up.
        range_learning_rate: maximum for the logarithm of scales, and for zero-points as a share of the grid.
        batch_size: texts per step.
        epochs: passes over the texts; after each, the texts held out say whether it is kept.
        warmup: share of the steps in which rates rise from zero.
        held_out: share of the texts that are never learned from, at most 256 of them.
        max_length: most tokens of a text.
        temperature: logits are divided by it before the softmax.
        relation: weight of the loss on the cosines between the embeddings of a batch.
        tokens: weight of the relative error of a bare encoder's token vectors.
        hidden: weight of the relative error at the end of every layer.
        attention: weight of the divergence of attention probabilities, for models that compute them.
        blocks: train one layer after the other on the relative error at its end. It needs the memory of one
            layer; with the same epochs it takes longer, and it sees the outputs in the last layer only.
        calibration: texts that ranges start from, as in `quantize`.
        clip: largest norm of the weights' gradient.
    """

    learn: Learn = "all"
    learning_rate: float = 2e-4
    range_learning_rate: float = 5e-2
    batch_size: int = 16
    epochs: int = 10
    warmup: float = 0.05
    held_out: float = 0.1
    max_length: int = 128
    temperature: float = 1.0
    relation: float = 1.0
    tokens: float = 1.0
    hidden: float = 0.0
    attention: float = 0.0
    blocks: bool = False
    calibration: int = 64
    clip: float = 1.0

    def __post_init__(self) -> None:
        if self.learn not in _LEARN:
            raise SpecError(f"learn must be {', '.join(_LEARN[:-1])} or {_LEARN[-1]}, got {self.learn!r}")
        for name in _WEIGHTS:
            if not getattr(self, name) >= 0:
                raise SpecError(f"{name} is the weight of a loss, 0 or more, got {getattr(self, name)!r}")
        if not self.temperature > 0 or not self.range_learning_rate > 0:
            name = "temperature" if not self.temperature > 0 else "range_learning_rate"
            raise SpecError(f"{name} must be positive, got {getattr(self, name)!r}")
        if not 0 < self.held_out < 1:
            raise SpecError(f"held_out is a share of the texts, above 0 and below 1, got {self.held_out!r}")
        if not isinstance(self.calibration, int) or self.calibration < 1:
            raise SpecError(f"calibration must be 1 text or more, got {self.calibration!r}")
        self.hyperparameters()  # which checks the rest

    @property
    def looks_inside(self) -> bool:
        """Whether tensors inside the model are compared, and not only its outputs."""
        return self.blocks or self.hidden > 0 or self.attention > 0

    def hyperparameters(self) -> Hyperparameters:
        """Return what the training loop reads; without dropout, as the teacher has none."""
        return Hyperparameters(
            learning_rate=self.learning_rate,
            range_learning_rate=self.range_learning_rate,
            batch_size=self.batch_size,
            epochs=self.epochs,
            warmup=self.warmup,
            max_length=self.max_length,
            clip=self.clip,
            attention_dropout=0.0,
            hidden_dropout=0.0,
            keep="best",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)
