"""Run by torchrun in a test: trains a tiny model and writes what each process ends with."""

from __future__ import annotations

import sys
from pathlib import Path

from safetensors.torch import save_file

from octavo.methods.training.finetuning import finetune
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.labelled import tokenize_labelled
from octavo.methods.training.launch import accelerator_for
from octavo.methods.training.loop import RunOptions
from tests.methods import tiny


def main(model: str, output: str) -> None:
    accelerator = accelerator_for("no", None, Path(output), cpu=True)
    encoder = tiny.encoder(model)
    # 37 examples: the last batch has fewer rows than the others, and an odd number of them
    data = tokenize_labelled(encoder, *tiny.texts(37), max_length=32)
    hyper = Hyperparameters(
        learning_rate=1e-3, batch_size=8, epochs=2, hidden_dropout=0.0, attention_dropout=0.0, keep="last"
    )
    finetune(encoder, data, hyper, options=RunOptions(accelerator=accelerator))
    rank = 0 if accelerator is None else accelerator.process_index
    parameters = {name: value.detach().contiguous() for name, value in encoder.graph.named_parameters()}
    save_file(parameters, Path(output) / f"rank-{rank}.safetensors")
    if accelerator is not None:
        accelerator.wait_for_everyone()
        accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
