"""What a pass may use besides the model: the float encoder, calibration data, a work folder, progress."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from octavo.errors import CalibrationError
from octavo.graph import Encoder, Text
from octavo.progress import Progress, silent

Calibration = Sequence[Text] | Iterable[Mapping[str, Tensor]]
Batches = Sequence[Mapping[str, Tensor]]


@dataclass(kw_only=True)
class Context:
    """The data and settings of one call of `quantize`.

    Arguments:
        calibration, batch_size, seed, max_length, work, progress: as in `quantize`.
    """

    encoder: Encoder
    calibration: Calibration | None = None
    batch_size: int = 1
    seed: int = 0
    max_length: int | None = None
    work: Path | None = None
    progress: Progress = silent

    def need(self, recipe: str, purpose: str) -> None:
        """Refuse to go on without calibration data, saying what a recipe needs it for."""
        if self.calibration is None:
            raise CalibrationError(f"recipe {recipe!r} {purpose}; give calibration texts")

    @cached_property
    def batches(self) -> Batches:
        """The calibration data as batches, in the seed's order."""
        assert self.calibration is not None
        return batches_of(self.encoder, self.calibration, self.batch_size, self.seed, self.max_length)

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
        return [batch for _, batch in encoder.batches(items, batch_size, max_length, order=order)]
    for item in items:
        if not isinstance(item, Mapping) or "input_ids" not in item:
            raise CalibrationError(
                f"calibration holds a {type(item).__name__}; "
                "give texts, pairs of texts, or batches with input_ids"
            )
    return items


def _is_pair(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and all(isinstance(text, str) for text in item)
