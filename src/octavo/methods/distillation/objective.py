"""The objective: how the outputs of a quantized model are compared with those of its float model.

| head                      | error, by which texts held out judge                         |
|---------------------------|---------------------------------------------------------------|
| encoder that embeds       | cosine distance of embeddings                                 |
| bare encoder              | relative error of token vectors                               |
| sequence classification   | KL divergence of logits; of each label's yes and no where     |
|                           | labels do not exclude each other; squared error over its      |
|                           | variance of a single logit                                    |
| token classification      | KL divergence of every token but special ones                 |
| masked language model     | KL divergence of every token                                  |
| question answering        | KL divergence over the places of starts and of ends           |

Training adds the relations and token vectors of an encoder that embeds, and what the settings ask for.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from octavo.graph import Encoder
from octavo.methods.calibration.output_error import special_ids
from octavo.methods.distillation.settings import Distillation
from octavo.numerics.distillation import (
    cosine_distance,
    divergence,
    label_divergence,
    mean,
    relation,
    relative_error,
)

Outputs = Sequence[Tensor]


class Objective:
    """Losses between a student's and its teacher's outputs, by what the head means.

    Arguments:
        encoder: the float model; its head, its outputs and its inputs are the student's too.
        hidden, attention: how many tensors of each kind follow the outputs, in this order.
    """

    def __init__(
        self, encoder: Encoder, settings: Distillation, *, hidden: int = 0, attention: int = 0
    ) -> None:
        self._encoder, self._settings = encoder, settings
        self._hidden, self._attention = hidden, attention
        self.head = encoder.head
        self._special = special_ids(encoder)
        self._variance = 1.0  # of a single logit over texts

    @property
    def measure(self) -> str:
        """What the error is, in words."""
        if self.head == "encoder":
            return "1 - cosine" if self._embeds else "relative squared error of token vectors"
        if self._single_logit:
            return "squared error over the variance of the logit"
        return "KL divergence"

    @property
    def _embeds(self) -> bool:
        return self.head == "encoder" and self._encoder.sentence.embeds

    @property
    def _single_logit(self) -> bool:
        head = self.head == "sequence-classification"
        return head and int(getattr(self._encoder.config, "num_labels", 0)) == 1

    def see(self, outputs: Outputs) -> None:
        """Learn from a teacher's first output for many texts how much a single logit varies."""
        if self._single_logit and len(outputs) > 1:
            self._variance = max(float(torch.cat(list(outputs)).float().var()), 1e-12)

    def error(self, outputs: Outputs, reference: Outputs, inputs: Outputs) -> Tensor:
        """Return the mean error of a batch, which is 0 for a model that answers as its teacher does."""
        names = self._encoder.output_names
        found, wanted = (dict(zip(names, each, strict=False)) for each in (outputs, reference))
        mask = self.mask(inputs)
        match self.head:
            case "encoder" if self._embeds:
                return cosine_distance(*self._embeddings(found, wanted, mask))
            case "encoder":
                return relative_error(found["last_hidden_state"], wanted["last_hidden_state"], mask)
            case "sequence-classification":
                return self._classified(found["logits"], wanted["logits"])
            case "question-answering":
                parts = [self._diverged(found[name], wanted[name], mask) for name in names]
                return torch.stack(parts).mean()
            case _:
                counted = mask & ~self._is_special(inputs) if self.head == "token-classification" else mask
                temperature = self._settings.temperature
                return divergence(found["logits"], wanted["logits"], None, temperature, counted)

    def loss(self, outputs: Outputs, reference: Outputs, inputs: Outputs) -> Tensor:
        """Return the error with all that training adds to it."""
        settings, mask = self._settings, self.mask(inputs)
        total = self.error(outputs, reference, inputs)
        if self._embeds:
            names = self._encoder.output_names
            found, wanted = (dict(zip(names, each, strict=False)) for each in (outputs, reference))
            if settings.relation:
                total = total + settings.relation * relation(*self._embeddings(found, wanted, mask))
            if settings.tokens:
                states = found["last_hidden_state"], wanted["last_hidden_state"]
                total = total + settings.tokens * relative_error(*states, mask)
        first = len(self._encoder.output_names)
        inside = list(zip(outputs[first:], reference[first:], strict=True))
        hidden, attention = inside[: self._hidden], inside[self._hidden :]
        if hidden:
            errors = [relative_error(*pair, mask) for pair in hidden]
            total = total + settings.hidden * torch.stack(errors).mean()
        if attention:
            total = total + settings.attention * self._attended(attention, mask)
        return total

    def mask(self, inputs: Outputs) -> Tensor:
        """Return which tokens of a batch are text, (batch, length)."""
        names = self._encoder.inputs
        if "attention_mask" in names:
            return inputs[names.index("attention_mask")].bool()
        ids = inputs[names.index("input_ids")]
        padding = getattr(self._encoder.tokenizer, "pad_token_id", None)
        return torch.ones_like(ids, dtype=torch.bool) if padding is None else ids != padding

    def _embeddings(
        self, found: dict[str, Tensor], wanted: dict[str, Tensor], mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        batch = {"attention_mask": mask}
        return self._encoder.embed(batch, found), self._encoder.embed(batch, wanted)

    def _classified(self, found: Tensor, wanted: Tensor) -> Tensor:
        if self._single_logit:
            return (found - wanted).square().mean() / self._variance
        if getattr(self._encoder.config, "problem_type", None) == "multi_label_classification":
            return label_divergence(found, wanted, self._settings.temperature)
        return self._diverged(found, wanted)

    def _diverged(self, found: Tensor, wanted: Tensor, valid: Tensor | None = None) -> Tensor:
        return divergence(found, wanted, valid, self._settings.temperature)

    def _attended(self, pairs: Sequence[tuple[Tensor, Tensor]], mask: Tensor) -> Tensor:
        """Return the mean KL divergence of attention probabilities (batch, heads, length, length)."""
        parts = []
        for found, wanted in pairs:
            # a quantized probability may be 0: where the teacher's is not, that must stay a finite error
            p, q = (probs.clamp_min(1e-4).log() for probs in (wanted, found))
            counted = mask[:, None, :].expand(found.shape[:3])
            parts.append(mean((p.exp() * (p - q)).sum(-1), counted))
        return torch.stack(parts).mean()

    def _is_special(self, inputs: Outputs) -> Tensor:
        """Return which tokens of a batch stand for no text, (batch, length)."""
        ids = inputs[self._encoder.inputs.index("input_ids")]
        self._special = self._special.to(ids.device)  # once: a copy from the host cannot be recorded
        return torch.isin(ids, self._special)
