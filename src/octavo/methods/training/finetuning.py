"""FP32 fine-tuning of a captured encoder (appendix B.1)."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import torch

from octavo.files import write_folder
from octavo.graph import Encoder
from octavo.graph.capture.source import network_from_config, quiet_transformers
from octavo.methods.training.dropout import set_dropout
from octavo.methods.training.examples import Examples
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.loop import RunOptions, Scorer, TrainingResult, train
from octavo.sentence import write_files


def own_copy(encoder: Encoder) -> Encoder:
    """Return an encoder of the same model whose graph, parameters and configuration are its own."""
    # a parameter that takes no gradient, such as RoFormer's sinusoids, takes none in the copy either
    return replace(encoder, graph=deepcopy(encoder.graph), config=deepcopy(encoder.config))


def finetune(
    encoder: Encoder,
    data: Examples,
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
    data.check(encoder)
    remember_length(encoder, data)
    set_dropout(encoder, hyper.attention_dropout, hyper.hidden_dropout)
    return train(encoder.graph, data, hyper, seed=seed, score=score, options=options)


def remember_length(encoder: Encoder, data: Examples) -> None:
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
        write_files(encoder.sentence, draft)
    return folder
