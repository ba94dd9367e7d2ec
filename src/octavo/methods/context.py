"""What a pass may use besides the model: the float encoder, calibration data, a work folder, progress."""

from __future__ import annotations

import hashlib
import random
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from octavo.errors import CalibrationError, OctavoWarning
from octavo.graph import Encoder, Text
from octavo.graph.padding import reads_padding, with_padding
from octavo.progress import Progress, silent

Calibration = Sequence[Text] | Iterable[Mapping[str, Tensor]]
Batches = Sequence[Mapping[str, Tensor]]
_EVERY = (7, 3)
"""One token in so many is masked: as in training, and many, as when whole words are asked for."""
_READS_PADDING = (
    "{} ({}) reads padding: what it computes for a text changes with the padding beside it, in float too. "
    "Ranges were found on texts with and without padding; results depend on how texts are batched, so batch "
    "texts of equal length where that matters"
)


@dataclass(kw_only=True)
class Context:
    """The data and settings of one call of `quantize`.

    Arguments:
        calibration, batch_size, seed, max_length, work, progress: as in `quantize`.
        keep_float: the model keeps its `float_model`, for whoever compares tensors inside the two.
        findings: what passes found out that is worth keeping, by pass, for the provenance of the model.
        remembered: what one pass computed from the encoder and the data that another may need again.
    """

    encoder: Encoder
    calibration: Calibration | None = None
    batch_size: int = 1
    seed: int = 0
    max_length: int | None = None
    work: Path | None = None
    progress: Progress = silent
    keep_float: bool = False
    findings: dict[str, Any] = field(default_factory=dict)
    remembered: dict[object, Any] = field(default_factory=dict)

    def need(self, recipe: str, purpose: str) -> None:
        """Refuse to go on without calibration data, saying what a recipe needs it for."""
        if self.calibration is None:
            raise CalibrationError(f"recipe {recipe!r} {purpose}; give calibration texts")

    @cached_property
    def batches(self) -> Batches:
        """The calibration data as batches, in the seed's order; with padding for a model that reads it."""
        assert self.calibration is not None
        found = batches_of(self.encoder, self.calibration, self.batch_size, self.seed, self.max_length)
        if not reads_padding(self.encoder, found):
            return found
        warnings.warn(
            _READS_PADDING.format(self.encoder.name, _family(self.encoder)), OctavoWarning, stacklevel=2
        )
        return with_padding(self.encoder, found)

    @property
    def used_data(self) -> bool:
        """Whether anything has asked for the calibration data."""
        return "batches" in self.__dict__

    def provenance(self) -> dict[str, Any]:
        """Return where ranges came from, as far as it can be told."""
        about: dict[str, Any] = {
            "model": self.encoder.name,
            "seed": self.seed,
            "batch_size": self.batch_size,
        }
        if isinstance(self.calibration, Sequence):
            digest = hashlib.sha256(repr(list(self.calibration)).encode()).hexdigest()
            about["calibration"] = {"texts": len(self.calibration), "sha256": digest}
        if self.findings:
            about["findings"] = self.findings
        return about


def batches_of(
    encoder: Encoder, calibration: Calibration, batch_size: int, seed: int, max_length: int | None
) -> list[Mapping[str, Tensor]]:
    """Return texts as batches in the seed's order, or the batches that were given."""
    if isinstance(calibration, str | Mapping):
        raise CalibrationError("calibration is a single item; give a list of texts or of batches")
    if batch_size < 1:
        raise CalibrationError(f"a batch size of {batch_size} was asked for; use 1 or more")
    items: list[Any] = list(calibration)
    if items and all(isinstance(item, str) or _is_pair(item) for item in items):
        order = list(range(len(items)))
        random.Random(seed).shuffle(order)
        made = [batch for _, batch in encoder.batches(items, batch_size, max_length, order=order)]
        return [*made, *_masked(encoder, made)]
    for item in items:
        if not isinstance(item, Mapping) or "input_ids" not in item:
            raise CalibrationError(
                f"calibration holds a {type(item).__name__}; "
                "give texts, pairs of texts, or batches with input_ids"
            )
    return items


def _family(encoder: Encoder) -> str:
    return str(getattr(encoder.config, "model_type", "") or type(encoder.config).__name__)


def _masked(encoder: Encoder, batches: Batches) -> list[Mapping[str, Tensor]]:
    """Return the batches with few and with many tokens masked, for a masked language model; none for others.

    It is asked at masks, which reach where no other token does, and further the more of them a text has:
    ranges from plain texts, or from texts with few masks, would cut them off. None either where the texts
    have masks of their own.
    """
    mask = getattr(encoder.tokenizer, "mask_token_id", None)
    if encoder.head != "masked-lm" or mask is None:
        return []
    if any(bool((batch["input_ids"] == mask).any()) for batch in batches):
        return []
    special = torch.tensor(encoder.tokenizer.all_special_ids if encoder.tokenizer else [])
    made: list[Mapping[str, Tensor]] = []
    for every in _EVERY:
        for number, batch in enumerate(batches):
            ids = batch["input_ids"]
            chosen = (torch.arange(ids.shape[1]) + number) % every == 0
            made.append({**batch, "input_ids": ids.masked_fill(chosen & ~torch.isin(ids, special), mask)})
    return made


def _is_pair(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and all(isinstance(text, str) for text in item)
