"""The split and the integer functions on the real model."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

import octavo
from octavo.graph import Encoder
from octavo.graph.rewrites.split import split_groups
from octavo.methods import quantize

TEXTS = (Path(octavo.__file__).parent / "demo_texts.txt").read_text(encoding="utf-8").splitlines()[:24]


def embeddings(model: Encoder) -> Tensor:
    """One row for every text."""
    rows: dict[int, Tensor] = {}
    for places, batch in model.batches(TEXTS, 8, pad=False):
        rows |= dict(zip(places, model.embed(batch, model(batch)), strict=True))
    return torch.stack([rows[place] for place in range(len(TEXTS))]).double()


def cosines(one: Encoder, other: Encoder) -> Tensor:
    return torch.cosine_similarity(embeddings(one), embeddings(other))


def test_a_split_model_equals_the_simulated_one(demo_encoder: Encoder) -> None:
    model = quantize(demo_encoder, octavo.recipe("w8a8-peg6"), TEXTS)
    split = split_groups(model)
    found = cosines(model, split)
    # A number within round-off of a rounding boundary may fall to either side, and the step is carried on.
    assert (found > 0.9999).double().mean() > 0.7
    assert found.min() > 0.97
    float_cosine, split_cosine = cosines(demo_encoder, model).mean(), cosines(demo_encoder, split).mean()
    assert abs(float_cosine - split_cosine) < 2e-3


def test_integer_functions_keep_the_embeddings(demo_encoder: Encoder) -> None:
    model = quantize(demo_encoder, octavo.recipe("ibert"), TEXTS)
    assert cosines(demo_encoder, model).mean() > 0.95
