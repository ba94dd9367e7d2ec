"""FP32 fine-tuning of a captured encoder (appendix B.1)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch

from octavo.errors import ModelError
from octavo.files import write_folder
from octavo.graph import Encoder
from octavo.graph.capture.source import network_from_config, quiet_transformers
from octavo.methods.training.dropout import set_dropout
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.labelled import Labelled
from octavo.methods.training.loop import Running, Score, TrainingResult, train


def own_copy(encoder: Encoder) -> Encoder:
    """Return an encoder of the same model whose graph and parameters are its own."""
    copied = replace(encoder, graph=deepcopy(encoder.graph))
    for parameter in copied.graph.parameters():
        parameter.requires_grad_(True)
    return copied


def check_trainable(encoder: Encoder, data: Labelled) -> None:
    """Refuse a head that does not fit the labels."""
    if encoder.head != "sequence-classification":
        raise ModelError(
            f"{encoder.name} has the head {encoder.head}; training needs a sequence-classification head, "
            "load it with that head and the task's number of labels"
        )
    outputs = int(getattr(encoder.config, "num_labels", 0))
    if data.regression and outputs != 1:
        raise ModelError(f"{encoder.name} has {outputs} outputs; scores need 1")
    most = 0 if data.regression else int(data.labels.max())
    if not data.regression and not (int(data.labels.min()) >= 0 and most < outputs):
        raise ModelError(
            f"{encoder.name} has {outputs} outputs, the labels go to {most}; give the head one for each"
        )


def finetune(
    encoder: Encoder,
    data: Labelled,
    hyper: Hyperparameters,
    *,
    seed: int = 0,
    score: Score | None = None,
    running: Running | None = None,
) -> TrainingResult:
    """Train every parameter of an encoder in place; `data` lies on its device.

    The encoder given is changed: pass `own_copy(encoder)` to keep one.
    """
    check_trainable(encoder, data)
    set_dropout(encoder, hyper.attention_dropout, hyper.hidden_dropout)
    return train(encoder.graph, data, hyper, seed=seed, score=score, running=running)


def save_encoder(encoder: Encoder, folder: Path, force: bool = False) -> Path:
    """Write a float encoder as a folder in Hugging Face's format, complete or not at all."""
    network = network_from_config(encoder.config, encoder.head)
    trained = {name: parameter.detach().cpu() for name, parameter in encoder.graph.named_parameters()}
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name in trained:
                parameter.copy_(trained[name])
    with write_folder(folder, force, marker="config.json") as draft, quiet_transformers():
        network.save_pretrained(draft)  # type: ignore[operator]
        if encoder.tokenizer is not None:
            encoder.tokenizer.save_pretrained(draft)
    return folder
