"""`octavo finetune` and `octavo qat`: training on a task of GLUE."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.command import command
from octavo.cli.console import Console
from octavo.cli.options import (
    DataOption,
    Device,
    DeviceOption,
    ForceOption,
    ModelArgument,
    SeedOption,
)

if TYPE_CHECKING:
    from octavo.experiments.task_data import TaskData
    from octavo.graph import Encoder
    from octavo.methods.training.hyperparameters import Hyperparameters
    from octavo.methods.training.loop import Running, TrainingResult

_FINETUNE = """Fine-tune a pre-trained model on a task of GLUE in FP32 (appendix B.1).

Adam, linear decay, at most 128 tokens; learning rate, batch size and epochs are the paper's for the task
unless given. The best epoch by the development set is kept. A run that was stopped goes on from its last
checkpoint. The result is a folder in Hugging Face's format. Several processes: start it with `torchrun` or
`accelerate launch`.

Examples:

* `octavo finetune demo:minilm --task glue/mrpc --data glue -o minilm-mrpc --learning-rate 1e-4`
* `octavo finetune bert-base-uncased --task glue/rte --data glue -o bert-rte --seeds 5` (keeps the median)
* `torchrun --nproc-per-node 4 -m octavo finetune bert-base-uncased --task glue/mnli --data glue -o bert-mnli`
"""

_QAT = """Train a fine-tuned model with quantization in the loop.

Ranges start from a calibration on training texts and are then learned, kept or averaged, as the recipe says.
Defaults are the paper's for the task (appendix B.3 and B.4). The result is an ordinary folder that Octavo
saved.

Examples:

* `octavo qat minilm-mrpc --recipe w8a8-qat --task glue/mrpc --data glue -o minilm-mrpc-w8a8`
* `octavo qat bert-rte --recipe w4a8-e2-qat --task glue/rte --data glue -o bert-rte-w4a8 --epochs 6`
"""

TaskOption = Annotated[str, typer.Option("--task", help="The task, such as glue/rte.", show_default=False)]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Where the model is saved.", show_default=False)
]
RateOption = Annotated[
    float | None,
    typer.Option("--learning-rate", min=0, help="Maximum learning rate.", show_default="the paper's"),
]
BatchOption = Annotated[
    int | None, typer.Option("--batch-size", min=1, help="Examples per step.", show_default="the paper's")
]
EpochsOption = Annotated[
    int | None, typer.Option("--epochs", min=1, help="Passes over the data.", show_default="the paper's")
]
PrecisionOption = Annotated[
    str, typer.Option("--mixed-precision", help="no, bf16 or fp16: mixed precision by accelerate.")
]
CompileOption = Annotated[
    bool,
    typer.Option(
        "--compile", help="Train through torch.compile: slow to start, then a third faster on a GPU."
    ),
]
LogOption = Annotated[
    str | None,
    typer.Option("--log", metavar="NAME", help="Log to tensorboard or another tracker of accelerate."),
]


@command("finetune", _FINETUNE)
def _finetune(
    current: Console,
    model: ModelArgument,
    task: TaskOption,
    output: OutputOption,
    data: DataOption = None,
    learning_rate: RateOption = None,
    batch_size: BatchOption = None,
    epochs: EpochsOption = None,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, help="Train with this many seeds and keep the median.")
    ] = 1,
    mixed_precision: PrecisionOption = "no",
    compiled: CompileOption = False,
    log: LogOption = None,
    force: ForceOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
) -> None:
    with nullcontext():  # @command opens the console; the block keeps its depth until its body is settled
        from octavo.files import check_output
        from octavo.methods.training.finetuning import finetune, own_copy, save_encoder
        from octavo.methods.training.head import new_head
        from octavo.methods.training.hyperparameters import finetuning_defaults
        from octavo.tasks.glue import glue_task

        described = glue_task(task)
        check_output(output, force, marker="config.json")
        hyper = _changed(finetuning_defaults(task), learning_rate, batch_size, epochs)
        with _launch(mixed_precision, log, output, device) as accelerator:
            base = _load(current, model, described.outputs, accelerator, device)
            name_outputs(base, task)
            read = _read(base, task, data)
            runs: list[tuple[float, int, Encoder, TrainingResult]] = []
            for each in range(seed, seed + seeds):
                encoder = own_copy(base)
                new_head(encoder, each)
                with current.progress(f"Fine-tuning, seed {each}") as progress:
                    running = _running(output, each, progress, accelerator, log, compiled)
                    result = finetune(
                        encoder,
                        read.train,
                        hyper,
                        seed=each,
                        score=lambda encoder=encoder: read.score(encoder),  # type: ignore[misc]
                        running=running,
                    )
                runs.append((read.score(encoder), each, encoder, result))
            runs.sort(key=lambda run: run[:2])
            _, kept, encoder, result = runs[(len(runs) - 1) // 2]
            if accelerator is None or accelerator.is_main_process:
                save_encoder(encoder, output, force=force)
                _report(current, output, task, read, encoder, result, kept, [run[0] for run in runs], hyper)


@command("qat", _QAT)
def _qat(
    current: Console,
    model: ModelArgument,
    recipe: Annotated[
        str,
        typer.Option(
            "--recipe",
            metavar="NAME|FILE",
            help="A preset such as w8a8-qat, or a YAML file.",
            show_default=False,
        ),
    ],
    task: TaskOption,
    output: OutputOption,
    data: DataOption = None,
    learning_rate: RateOption = None,
    batch_size: BatchOption = None,
    epochs: EpochsOption = None,
    calibration_texts: Annotated[
        int, typer.Option("--calibration-texts", min=1, help="Training texts that ranges start from.")
    ] = 16,
    mixed_precision: PrecisionOption = "no",
    compiled: CompileOption = False,
    log: LogOption = None,
    force: ForceOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = Device.auto,
) -> None:
    with nullcontext():  # @command opens the console; the block keeps its depth until its body is settled
        from octavo.files import check_output
        from octavo.graph.saved.write import MANIFEST
        from octavo.methods.training.hyperparameters import qat_defaults
        from octavo.methods.training.quantized import qat
        from octavo.spec.presets import recipe as find_recipe
        from octavo.tasks.glue import glue_task

        glue_task(task)
        chosen = find_recipe(recipe)
        check_output(output, force, marker=MANIFEST)
        hyper = _changed(qat_defaults(task, chosen), learning_rate, batch_size, epochs)
        with _launch(mixed_precision, log, output, device) as accelerator:
            base = _load(current, model, None, accelerator, device)
            check_head(base, task)
            read = _read(base, task, data)
            with current.progress(f"Training {chosen.name}") as progress:
                quantized, result = qat(
                    base,
                    chosen,
                    read.train,
                    hyper,
                    calibration=read.sample(calibration_texts, seed),
                    seed=seed,
                    score=read.score,
                    running=_running(output, seed, progress, accelerator, log, compiled),
                )
            if accelerator is None or accelerator.is_main_process:
                quantized.save(output, force=force)
                _report(current, output, task, read, quantized, result, seed, [read.score(quantized)], hyper)


def name_outputs(encoder: Encoder, task: str) -> None:
    """Write the task's labels into the configuration, so that whoever loads the model knows them."""
    from octavo.tasks.glue import glue_task

    labels = glue_task(task).labels
    if labels is None:
        encoder.config.problem_type = "regression"
        return
    encoder.config.id2label = dict(enumerate(labels))
    encoder.config.label2id = {label: index for index, label in enumerate(labels)}


def check_head(encoder: Encoder, task: str) -> None:
    """Refuse a model whose head does not fit the task."""
    from octavo.errors import ModelError
    from octavo.tasks.glue import glue_task

    outputs = glue_task(task).outputs
    found = getattr(encoder.config, "num_labels", None) if encoder.head == "sequence-classification" else None
    if found != outputs:
        has = "no classification head" if found is None else f"a head with {found} outputs"
        raise ModelError(
            f"{encoder.name} has {has}, {task} needs {outputs}; "
            f"fine-tune it first: octavo finetune MODEL --task {task}"
        )


def _changed(
    hyper: Hyperparameters, learning_rate: float | None, batch_size: int | None, epochs: int | None
) -> Hyperparameters:
    given = {"learning_rate": learning_rate, "batch_size": batch_size, "epochs": epochs}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    return replace(hyper, **changes)


def _load(current: Console, model: str, labels: int | None, accelerator: Any, device: str) -> Encoder:
    import octavo

    head: Any = {} if labels is None else {"head": "sequence-classification", "labels": labels}
    device = device if accelerator is None else str(accelerator.device)
    with current.progress(f"Loading {model}"):
        return octavo.load(model, device=device, **head)


def _read(encoder: Encoder, task: str, data: Path | None) -> TaskData:
    from octavo.experiments.task_data import read_task

    return read_task(encoder, task, data)


@contextmanager
def _launch(precision: str, log: str | None, output: Path, device: str) -> Iterator[Any]:
    """Yield an accelerator where several processes, mixed precision or a tracker ask for it, else None."""
    from octavo.experiments.launch import accelerator_for

    accelerator = accelerator_for(precision, log, output, cpu=device == "cpu")
    yield accelerator
    if accelerator is not None:
        accelerator.wait_for_everyone()
        accelerator.end_training()


def _running(
    output: Path, seed: int, progress: Any, accelerator: Any, log: str | None, compiled: bool
) -> Running:
    from octavo.methods.training.loop import Running

    write = None if log is None else lambda step, values: accelerator.log(values, step=step)
    checkpoint = output.with_name(f".{output.name}-seed-{seed}.checkpoint")
    return Running(
        checkpoint=checkpoint, progress=progress, accelerator=accelerator, log=write, compile=compiled
    )


def _report(
    current: Console,
    output: Path,
    task: str,
    read: TaskData,
    model: Encoder,
    result: TrainingResult,
    seed: int,
    scores: list[float],
    hyper: Hyperparameters,
) -> None:
    import shutil

    from octavo.versions import versions

    for folder in output.parent.glob(f".{output.name}-seed-*.checkpoint"):
        shutil.rmtree(folder, ignore_errors=True)
    metrics = read.metrics(model)
    shown = ", ".join(f"{name} {value:.2f}" for name, value in metrics.items())
    partial = [split for split, about in read.about.items() if about["partial"]]
    epoch = f"epoch {result.kept_epoch} of {hyper.epochs}"
    current.show(f"{task}: {shown} (seed {seed}, {epoch}, {result.seconds:.0f} s)")
    if len(scores) > 1:
        listed = ", ".join(f"{score:.2f}" for score in scores)
        current.show(f"Scores of all seeds: {listed}; the median was kept.")
    if partial:
        current.warn(f"the data is partial: {', '.join(partial)}")
    current.show(f"Saved in {output}")
    current.result(
        {
            "task": task,
            "output": str(output),
            "metrics": metrics,
            "score": sum(metrics.values()) / len(metrics),
            "scores": scores,
            "seed": seed,
            "hyperparameters": hyper.to_dict(),
            "training": result.to_dict(),
            "data": read.about,
            "versions": versions(),
        }
    )
