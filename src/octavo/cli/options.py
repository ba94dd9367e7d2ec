"""Arguments and options that several commands share, so that they mean and say the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.completion import recipe_names


class Device(StrEnum):
    """Where models run."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Head(StrEnum):
    """What a model ends with."""

    encoder = "encoder"
    sequence_classification = "sequence-classification"
    token_classification = "token-classification"
    question_answering = "question-answering"
    masked_lm = "masked-lm"


SeedOption = Annotated[
    int,
    typer.Option("--seed", min=0, help="Seed of everything that is random."),
]
DeviceOption = Annotated[
    Device,
    typer.Option("--device", help="Where models run; auto takes a GPU if there is one."),
]
PrecisionOption = Annotated[
    str, typer.Option("--mixed-precision", help="no, bf16 or fp16: mixed precision by accelerate.")
]
HeadOption = Annotated[
    Head | None,
    typer.Option(
        "--head",
        help="Load a float model with this head; a model that Octavo saved keeps its own.",
        show_default="the checkpoint's",
    ),
]
ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A hub id, a folder that Hugging Face or Octavo saved, or demo:minilm.",
        show_default=False,
    ),
]
RecipeOption = Annotated[
    str,
    typer.Option(
        "--recipe",
        metavar="NAME|FILE",
        autocompletion=recipe_names,
        help="A preset (see `octavo recipes`) or a YAML file.",
        show_default=False,
    ),
]
# the name is spelled out: where the metavar is the name in capitals, typer 0.27 would take it for the name
DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="GLUE_DIR", help="Folder with CoLA, SST-2, ...", show_default="the hub"),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")]


TEXT_FILE = (
    "UTF-8, one text per line, a tab between the two texts of a pair; or a column of a table, FILE.csv:COLUMN"
)
"""What a file of texts looks like, for the help of every option that takes one."""
