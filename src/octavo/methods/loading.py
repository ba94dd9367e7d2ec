"""`octavo.load`: one door for every kind of model."""

from __future__ import annotations

from pathlib import Path

import torch

from octavo.errors import ModelError
from octavo.graph.capture.source import load_encoder, locate
from octavo.graph.encoder import Encoder, Head
from octavo.graph.saved.read import load as load_saved
from octavo.graph.saved.write import is_saved
from octavo.methods.passes import replay


def load(
    model: str | Path,
    *,
    head: Head | None = None,
    labels: int | None = None,
    device: str = "cpu",
    trust_remote_code: bool = False,
) -> Encoder:
    """Load a model and capture its graph.

    Arguments:
        model: a hub id, a folder of Hugging Face or sentence-transformers, a folder Octavo saved (gives a
            `QuantizedEncoder`), or `demo:minilm`.
        head: use another head than the one the checkpoint names. By itself a folder of sentence-transformers
            is a bare encoder, and so is a checkpoint that lacks the weights of the head it names.
        labels: number of labels of a new classification head.
        device: `cpu`, `cuda` or `auto` (a GPU if there is one).
        trust_remote_code: run Python code that comes with the model; never needed for models in transformers.
    """
    name = str(model)
    place = Path(locate(name))
    target = choose_device(device)
    if is_saved(place):
        if head is not None or labels is not None:
            raise ModelError(f"{name} was saved by Octavo with its head; load it without head and labels")
        return load_saved(place, replay, name).to(target)
    return load_encoder(name, head, labels, trust_remote_code).to(target)


def choose_device(device: str) -> torch.device:
    """The device a name stands for; asking for a GPU that is not there is an error."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"unknown device {device!r}; use auto, cpu or cuda") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ModelError("there is no CUDA device here; use --device cpu or auto")
    return chosen
