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
from octavo.methods.training.loop import RunOptions, Scorer, TrainingResult, train


def own_copy(encoder: Encoder) -> Encoder:
    """Return an encoder of the same model whose graph, parameters and configuration are its own."""
    # a parameter that takes no gradient, such as RoFormer's sinusoids, takes none in the copy either
    return replace(encoder, graph=deepcopy(encoder.graph), config=deepcopy(encoder.config))


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
    score: Scorer | None = None,
    options: RunOptions | None = None,
) -> TrainingResult:
    """Train the parameters of an encoder in place; `data` lies on its device.

    The encoder given is changed: pass `own_copy(encoder)` to keep one. Its configuration remembers the most
    tokens that a text had in training, so that it is evaluated as it was trained.
    """
    check_trainable(encoder, data)
    remember_length(encoder, data)
    set_dropout(encoder, hyper.attention_dropout, hyper.hidden_dropout)
    return train(encoder.graph, data, hyper, seed=seed, score=score, options=options)


def remember_length(encoder: Encoder, data: Labelled) -> None:
    """Write into the configuration how long texts were in training, for `octavo.tasks` to evaluate alike."""
    if data.max_length is not None:
        encoder.config.trained_max_length = data.max_length


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
