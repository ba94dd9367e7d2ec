"""New classification heads: drawn by a seed of their own, without loading or capturing the model again."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn

from octavo.graph import Encoder


def head_parameters(encoder: Encoder) -> dict[str, nn.Parameter]:
    """The parameters outside the pre-trained body, which is where most names begin (`bert.`, `roberta.`)."""
    named = dict(encoder.graph.named_parameters())
    body = Counter(name.split(".")[0] for name in named).most_common(1)[0][0]
    return {name: parameter for name, parameter in named.items() if name.split(".")[0] != body}


def new_head(encoder: Encoder, seed: int) -> None:
    """Draw the head anew: normal weights as wide as the configuration says, biases zero."""
    width = float(getattr(encoder.config, "initializer_range", 0.02))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head_parameters(encoder).values():
            drawn = torch.randn(parameter.shape, generator=generator) * width
            parameter.copy_(drawn if parameter.dim() > 1 else torch.zeros_like(drawn))
