"""`octavo finetune` and `octavo qat`: training on a user's own labels, or on a task of GLUE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from octavo.cli.command import command
from octavo.cli.console import Console
from octavo.cli.exportable import warn_unless_exportable
from octavo.cli.options import (
    Device,
    DeviceOption,
    ForceOption,
    ModelArgument,
    PrecisionOption,
    RecipeOption,
    SeedOption,
)
from octavo.cli.tasks import DataOption, LabelOption, TaskChoice, TaskOption, TextOption
from octavo.errors import OctavoError

if TYPE_CHECKING:
    from octavo.graph import Encoder
    from octavo.methods.training.hyperparameters import Hyperparameters
    from octavo.methods.training.loop import RunOptions, TrainingResult
    from octavo.progress import Progress
    from octavo.tasks import Task
    from octavo.tasks.task_data import TrainingData

_FINETUNE = """Fine-tune a pre-trained model in FP32: on your own labels, or on a task of GLUE (appendix B.1).

Your own data is a table (`--data train.csv --text review --label stars`, two `--text` for pairs), a CoNLL
file or SQuAD's JSON; `--task` names the kind where the file does not tell, or a task file (YAML). The head is
made for it, and the labels are written into the model. Without `--dev`, a tenth of the data is held out.

Adam, linear decay, at most 128 tokens; learning rate, batch size and epochs are the paper's for the task
unless given. The best epoch by the development set is kept. A run that was stopped resumes from its last
checkpoint. The result is a folder in Hugging Face's format, which `octavo evaluate` scores with the same
length of texts. Several processes: start it with `torchrun` or
`accelerate launch`.

Examples:

* `octavo finetune demo:minilm --data train.csv --text review --label stars -o stars --learning-rate 1e-4`

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
* `octavo qat stars --recipe w8a8-qat --data train.csv --text review --label stars -o stars-w8a8`
"""

DevOption = Annotated[
    Path | None,
    typer.Option(
        "--dev",
        metavar="FILE",
        help="Your own data to choose the best epoch by.",
        show_default="a tenth of --data",
    ),
]
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
LengthOption = Annotated[
    int | None,
    typer.Option("--max-length", min=2, help="Most tokens of a text.", show_default="the paper's 128"),
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
    console: Console,
    model: ModelArgument,
    output: OutputOption,
    task: TaskOption = None,
    data: DataOption = None,
    text: TextOption = None,
    label: LabelOption = None,
    dev: DevOption = None,
    learning_rate: RateOption = None,
    batch_size: BatchOption = None,
    epochs: EpochsOption = None,
    max_length: LengthOption = None,
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
    from octavo.experiments.paper import finetuning_defaults
    from octavo.files import check_output
    from octavo.methods.training.finetuning import save_encoder
    from octavo.methods.training.head import load_with_head
    from octavo.methods.training.seeds import finetune_seeds, median_by
    from octavo.tasks.heads import name_outputs

    choice = _training_task(task, data, text, label, dev)
    chosen = choice.find(None)
    labels, outputs, head = _new_head(chosen)
    check_output(output, force, marker="config.json")
    hyper = _changed(finetuning_defaults(choice.name), learning_rate, batch_size, epochs, max_length)
    with _launch(mixed_precision, log, output, device) as accelerator:
        with console.progress(f"Loading {model}"):
            base = load_with_head(model, outputs, head=head, device=_device(device, accelerator))
        name_outputs(base, chosen, labels)
        examples = _read(console, base, chosen, data, hyper.max_length)
        with console.progress("Fine-tuning") as progress:
            runs = finetune_seeds(
                base,
                examples.train,
                hyper,
                seeds=range(seed, seed + seeds),
                score=examples.score,
                output=output,
                options=_options(progress, accelerator, log, compiled),
            )
        kept = median_by(lambda run: run.score, runs)
        if accelerator is None or accelerator.is_main_process:
            save_encoder(kept.encoder, output, force=force)
            scores = sorted(run.score for run in runs)
            _report(
                console, output, choice.name, examples, kept.encoder, kept.result, kept.seed, scores, hyper
            )


@command("qat", _QAT)
def _qat(
    console: Console,
    model: ModelArgument,
    recipe: RecipeOption,
    output: OutputOption,
    task: TaskOption = None,
    data: DataOption = None,
    text: TextOption = None,
    label: LabelOption = None,
    dev: DevOption = None,
    learning_rate: RateOption = None,
    batch_size: BatchOption = None,
    epochs: EpochsOption = None,
    max_length: LengthOption = None,
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
    from octavo import load
    from octavo.experiments.paper import qat_defaults
    from octavo.files import check_output
    from octavo.graph.saved.write import MANIFEST
    from octavo.methods.training.checkpoint import checkpoint_beside
    from octavo.methods.training.quantized import qat
    from octavo.spec.presets import recipe as find_recipe

    choice = _training_task(task, data, text, label, dev)
    chosen = find_recipe(recipe)
    check_output(output, force, marker=MANIFEST)
    hyper = _changed(qat_defaults(choice.name, chosen), learning_rate, batch_size, epochs, max_length)
    with _launch(mixed_precision, log, output, device) as accelerator:
        with console.progress(f"Loading {model}"):
            base = load(model, device=_device(device, accelerator))
        wanted = choice.find(base.head)
        _check_model(base, wanted)
        warn_unless_exportable(console, base)
        examples = _read(console, base, wanted, data, hyper.max_length)
        with console.progress(f"Training {chosen.name}") as progress:
            options = _options(progress, accelerator, log, compiled)
            quantized, result = qat(
                base,
                chosen,
                examples.train,
                hyper,
                calibration=examples.sample(calibration_texts, seed),
                seed=seed,
                score=examples.score,
                options=replace(options, checkpoint=checkpoint_beside(output, seed)),
            )
        if accelerator is None or accelerator.is_main_process:
            quantized.save(output, force=force)
            scores = [examples.score(quantized)]
            _report(console, output, choice.name, examples, quantized, result, seed, scores, hyper)


def _training_task(
    task: str | None,
    data: Path | None,
    text: Sequence[str] | None,
    label: Sequence[str] | None,
    dev: Path | None,
) -> TaskChoice:
    """Return what is trained on; what cannot be read is an error before a model is loaded."""
    choice = TaskChoice(task=task, data=data, text=text or (), label=label or (), dev=dev, training=True)
    choice.check()
    if not choice:
        raise OctavoError(
            "There is nothing to train on; give --data FILE --text COLUMN --label COLUMN, a task file, or a "
            "task such as --task glue/rte."
        )
    if choice.is_glue:
        from octavo.tasks.glue import glue_task

        glue_task(choice.name)  # similarity/stsb is scored, not trained on
        if dev is not None:
            raise OctavoError(f"{choice.name} has a development set of its own; leave out --dev.")
    return choice


def _new_head(task: str | Task) -> tuple[tuple[str, ...], int | None, Any]:
    """Return the names of a new head's outputs, their number where it is free, and the kind of head."""
    from octavo.tasks.glue import glue_task

    if isinstance(task, str):
        return (), glue_task(task).outputs, "sequence-classification"
    head = task.heads[0]
    labels = task.output_labels(task.read("train"))
    free = head not in ("question-answering", "encoder")
    return labels, (len(labels) or 1) if free else None, head


def _check_model(model: Encoder, task: str | Task) -> None:
    from octavo.tasks.heads import check_head

    if isinstance(task, str):
        check_head(model, task)
    else:
        task.check_model(model)


def _read(
    console: Console, model: Encoder, task: str | Task, data: Path | None, max_length: int
) -> TrainingData:
    from octavo.tasks.task_data import read_kind, read_task

    if isinstance(task, str):
        return read_task(model, task, data, max_length)
    read = read_kind(model, task, max_length)
    counts = {split: about["examples"] for split, about in read.about.items()}
    if task.dev is not None:
        beside = ""
    elif read.dev.split == "dev":
        beside = f"; {counts['dev']} are held out (octavo evaluate --split dev)"
    else:
        beside = f"; {counts['dev']} of {read.dev.split} say which epoch is best"
    console.note(f"{task.title}: {counts['train']} examples to train on{beside}")
    return read


def _changed(
    hyper: Hyperparameters,
    learning_rate: float | None,
    batch_size: int | None,
    epochs: int | None,
    max_length: int | None,
) -> Hyperparameters:
    given = {
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "epochs": epochs,
        "max_length": max_length,
    }
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    return replace(hyper, **changes)


def _device(device: Device, accelerator: Any) -> str:
    return str(device if accelerator is None else accelerator.device)


@contextmanager
def _launch(precision: str, log: str | None, output: Path, device: str) -> Iterator[Any]:
    """Yield an accelerator where several processes, mixed precision or a tracker ask for it, else None."""
    from octavo.methods.training.launch import accelerator_for

    accelerator = accelerator_for(precision, log, output, cpu=device == "cpu")
    yield accelerator
    if accelerator is not None:
        accelerator.wait_for_everyone()
        accelerator.end_training()


def _options(progress: Progress, accelerator: Any, log: str | None, compiled: bool) -> RunOptions:
    from octavo.methods.training.loop import RunOptions

    write = None if log is None else lambda step, values: accelerator.log(values, step=step)
    return RunOptions(progress=progress, accelerator=accelerator, log=write, compile=compiled)


def _report(
    console: Console,
    output: Path,
    task: str,
    examples: TrainingData,
    model: Encoder,
    result: TrainingResult,
    seed: int,
    scores: list[float],
    hyper: Hyperparameters,
) -> None:
    from octavo.methods.training.checkpoint import discard_checkpoints_beside
    from octavo.versions import versions

    discard_checkpoints_beside(output)
    metrics = examples.metrics(model)
    shown = ", ".join(f"{name} {value:.2f}" for name, value in metrics.items())
    partial = [split for split, about in examples.about.items() if about["partial"]]
    epoch = f"epoch {result.kept_epoch} of {hyper.epochs}"
    console.show(f"{task}: {shown} (seed {seed}, {epoch}, {result.seconds:.0f} s)")
    if len(scores) > 1:
        listed = ", ".join(f"{score:.2f}" for score in scores)
        console.show(f"Scores of all seeds: {listed}; the median was kept.")
    if partial:
        console.warn(f"the data is partial: {', '.join(partial)}")
    console.show(f"Saved in {output}")
    console.result(
        {
            "task": task,
            "output": str(output),
            "metrics": metrics,
            "score": examples.score_of(metrics),
            "scores": scores,
            "seed": seed,
            "hyperparameters": hyper.to_dict(),
            "training": result.to_dict(),
            "data": examples.about,
            "versions": versions(),
        }
    )
