"""New classification heads: drawn by a seed of their own, without loading or capturing the model again."""

from __future__ import annotations

from collections import Counter

import torch
from torch import nn

from octavo.graph import Encoder
from octavo.graph.encoder import Head
from octavo.methods.loading import load


def load_with_head(
    model: str,
    outputs: int | None,
    *,
    head: Head = "sequence-classification",
    device: str = "cpu",
    seed: int = 0,
) -> Encoder:
    """Load a model with a new head; all that its checkpoint lacks is drawn by the seed.

    `outputs` is None for heads that have a number of their own, such as that of question answering.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return load(model, head=head, labels=outputs, device=device)


def head_parameters(encoder: Encoder) -> dict[str, nn.Parameter]:
    """Return the parameters outside the pre-trained body, where most names begin (`bert.`, `roberta.`)."""
    named = dict(encoder.graph.named_parameters())
    body = Counter(name.split(".")[0] for name in named).most_common(1)[0][0]
    return {name: parameter for name, parameter in named.items() if name.split(".")[0] != body}


def new_head(encoder: Encoder, seed: int) -> None:
    """Draw the head anew: normal weights as wide as the configuration says, norms one, biases zero."""
    width = float(getattr(encoder.config, "initializer_range", 0.02))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in head_parameters(encoder).items():
            drawn = torch.randn(parameter.shape, generator=generator) * width
            if parameter.dim() > 1:
                parameter.copy_(drawn)
            else:  # a vector that is called a weight scales what a norm has normalized
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
