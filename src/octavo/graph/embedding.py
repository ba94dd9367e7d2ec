"""Embeddings in torch, with gradients: the pooling and the modules that `octavo.sentence` describes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from octavo.sentence import Dense, Pooling, SentenceModules

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": functional.relu,
    "Sigmoid": torch.sigmoid,
    "SiLU": functional.silu,
    "GELU": functional.gelu,
}


def embed(hidden: Tensor, mask: Tensor, modules: SentenceModules) -> Tensor:
    """Return the embeddings (batch, width) of hidden states (batch, length, width) and their mask."""
    vectors = pool(hidden, mask.to(hidden.device), modules.pooling)
    for step in modules.steps:
        if isinstance(step, Dense):
            bias = None if step.bias is None else torch.from_numpy(step.bias).to(vectors)
            linear = functional.linear(vectors, torch.from_numpy(step.weight).to(vectors), bias)
            vectors = _ACTIVATIONS[step.activation](linear)
        else:
            vectors = functional.normalize(vectors, dim=-1)
    return vectors


def pool(hidden: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """Return one vector a text, (batch, width), from hidden states (batch, length, width)."""
    rows = torch.arange(len(mask), device=mask.device)
    first = (mask != 0).int().argmax(1)
    if pooling == "cls":
        return hidden[rows, first]
    if pooling == "lasttoken":
        return hidden[rows, mask.shape[1] - 1 - (mask.flip(1) != 0).int().argmax(1)]
    if pooling == "max":
        return hidden.masked_fill(mask.unsqueeze(-1) == 0, -torch.inf).amax(1)
    weight = mask.to(hidden.dtype).unsqueeze(-1)
    if pooling == "weightedmean":  # the n-th token of a text weighs n
        positions = torch.arange(1, mask.shape[1] + 1, device=mask.device) - first.unsqueeze(1)
        weight = weight * positions.to(hidden.dtype).unsqueeze(-1)
    total = weight.sum(1)
    return (hidden * weight).sum(1) / (total.sqrt() if pooling == "mean_sqrt_len_tokens" else total)
