"""A family under test: its networks, graphs and quantized models, each made when first asked for."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import nn

import octavo
from octavo.graph import Encoder, Head, QuantizedEncoder
from octavo.graph.capture.source import make_encoder
from tests.conformance.subjects import (
    FEW,
    FEW_OF_PRESETS,
    NAME,
    NEED_A_HEAD,
    RECIPES,
    Batch,
    batches,
    heads_of,
    network,
)

_CLASSIFIER: Head = "sequence-classification"


@dataclass
class Captured:
    """A family's network and encoder for each head, and its quantized models."""

    family: str
    made: dict[Head, tuple[nn.Module, Encoder]] = field(default_factory=dict)
    blanks: dict[Head, Encoder] = field(default_factory=dict)
    quantized: dict[tuple[str, Head], QuantizedEncoder] = field(default_factory=dict)

    @cached_property
    def batches(self) -> dict[str, Batch]:
        """Every batch by its name."""
        return batches(self.family)

    @property
    def few(self) -> dict[str, Batch]:
        """The batches that every pass, head and file runs on: short, long, padded and not."""
        return {name: self.batches[name] for name in FEW}

    def of_preset(self, preset: str, head: Head = "encoder") -> dict[str, Batch]:
        """The batches that a preset is calibrated with, and runs on."""
        if head != "encoder" or preset != "int8":
            return {name: self.batches[name] for name in (FEW if preset == "int8" else FEW_OF_PRESETS)}
        return self.batches

    def pair(self, head: Head = "encoder") -> tuple[nn.Module, Encoder]:
        """Return Hugging Face's network and the encoder captured from it."""
        if head not in self.made:
            # two networks with the same weights, so that capture cannot change what it is compared with
            encoder = make_encoder(NAME, network(self.family, head), None, head)
            self.made[head] = network(self.family, head), encoder
        return self.made[head]

    def encoder(self, head: Head = "encoder") -> Encoder:
        """Return the captured encoder."""
        return self.pair(head)[1]

    def by(self, preset: str, head: Head = "encoder") -> QuantizedEncoder:
        """Return the family quantized by a preset, with a classifier where the preset needs one."""
        if (preset, head) not in self.quantized:
            classifies = preset in NEED_A_HEAD and _CLASSIFIER in heads_of(self.family)
            self.quantized[preset, head] = octavo.quantize(
                self.encoder(_CLASSIFIER if classifies else head),
                RECIPES[preset],
                calibration=list(self.of_preset(preset, head).values()),
            )
        return self.quantized[preset, head]

    def blank(self, head: Head) -> Encoder:
        """Return another encoder of the same architecture, every weight of which is the same number."""
        if head not in self.blanks:
            encoder = self.encoder(head)
            self.blanks[head] = replace(encoder, graph=copy.deepcopy(encoder.graph))
        with torch.no_grad():
            for parameter in self.blanks[head].graph.parameters():
                if parameter.requires_grad:
                    parameter.fill_(0.5)
        return self.blanks[head]
