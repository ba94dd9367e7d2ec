"""A task a tiny network learns in seconds: does the letter a occur in the text?"""

from __future__ import annotations

import random

import torch

from octavo.graph import Encoder
from octavo.methods import load
from octavo.methods.training.labelled import Labelled, tokenize_labelled


def texts(count: int, seed: int = 0) -> tuple[list[str], list[int]]:
    """Words of other letters, half of them with an a put in."""
    chooser = random.Random(seed)
    made, labels = [], []
    for _ in range(count):
        word = [chooser.choice("bcdefg") for _ in range(chooser.randint(3, 12))]
        label = chooser.randint(0, 1)
        if label:
            word[chooser.randrange(len(word))] = "a"
        made.append("".join(word))
        labels.append(label)
    return made, labels


def encoder(folder: object, labels: int = 2) -> Encoder:
    torch.manual_seed(0)
    return load(str(folder), head="sequence-classification", labels=labels)


def data(model: Encoder, count: int = 64, seed: int = 0) -> Labelled:
    return tokenize_labelled(model, *texts(count, seed), max_length=32)


def accuracy(model: Encoder, batch: Labelled) -> float:
    with torch.no_grad():
        inputs, labels = batch.batch(torch.arange(len(batch)), batch.cut(int(batch.lengths.max())))
        return float((model.graph(*inputs)[0].argmax(1) == labels).float().mean())
