"""How close a quantized model stays to its float original, on outputs that are computed once and kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from octavo.diagnosis.watch import Batch
from octavo.graph import Encoder, Text

Score = Callable[[Encoder], float]
"""The score of a model on a task, such as `octavo.tasks.score_task` gives; higher is better."""
_MOST_DB = 200.0


@dataclass(frozen=True, kw_only=True)
class Quality:
    """Fidelity of a model to the float model, and its task's score where there is one.

    cosine: mean over texts (tokens, for token heads) of the cosine of outputs; None for a single logit.
    sqnr_db: signal to noise ratio of all outputs, at most 200.
    agreement: share of equal predictions, None for embeddings.
    """

    cosine: float | None
    sqnr_db: float
    agreement: float | None = None
    score: float | None = None

    @property
    def measure(self) -> str:
        """The name of what models are ranked by: the score, else the cosine, else the SQNR."""
        return "score" if self.score is not None else "cosine" if self.cosine is not None else "sqnr_db"

    @property
    def value(self) -> float:
        """What models are ranked by; higher is better."""
        return float(getattr(self, self.measure))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


class Reference:
    """The float model's outputs on some texts, to compare quantized models with."""

    def __init__(
        self,
        encoder: Encoder,
        texts: Sequence[Text],
        *,
        batch_size: int,
        max_length: int | None,
        score: Score | None,
    ) -> None:
        self._encoder = encoder
        self._score = score
        # start and end logits stand one a token, so padding would be among the answers
        pad = encoder.head != "question-answering"
        self._batches = [batch for _, batch in encoder.batches(texts, batch_size, max_length, pad=pad)]
        self._outputs = [_rows(encoder, batch) for batch in self._batches]

    def measure(self, model: Encoder) -> Quality:
        """Run a model of the same head on the same texts, and on the task if there is one."""
        cosine = signal = noise = 0.0
        rows = agree = 0
        for batch, reference in zip(self._batches, self._outputs, strict=True):
            found, wanted = _rows(model, batch).double(), reference.double()
            signal += float(wanted.square().sum())
            noise += float((found - wanted).square().sum())
            cosine += float(torch.cosine_similarity(found, wanted, dim=-1).sum())
            agree += int((found.argmax(-1) == wanted.argmax(-1)).sum())
            rows += len(found)
        width = self._outputs[0].shape[-1]
        quality = Quality(
            cosine=cosine / rows if width > 1 else None,
            sqnr_db=_decibels(signal, noise),
            agreement=agree / rows if width > 1 and self._encoder.head != "encoder" else None,
        )
        return quality if self._score is None else replace(quality, score=self._score(model))


def _rows(model: Encoder, batch: Batch) -> Tensor:
    """Outputs as rows: an embedding or logits per text, or logits per token without padding."""
    outputs = model(batch)
    if model.head == "encoder":
        return model.embed(batch, outputs).cpu()
    mask = batch["attention_mask"].bool()
    rows = []
    for output in outputs.values():
        values = output.cpu()
        rows.append(values[mask] if values.dim() == 3 else values)
    return torch.cat(rows)


def _decibels(signal: float, noise: float) -> float:
    return min(_MOST_DB, 10 * math.log10(max(signal, 1e-300) / max(noise, 1e-300)))
