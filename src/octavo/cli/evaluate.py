"""`octavo evaluate`: how faithful a model is to another, or how well it does on a task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from octavo.cli.command import command
from octavo.cli.console import Console
from octavo.cli.options import (
    TEXT_FILE,
    Device,
    DeviceOption,
    Head,
    HeadOption,
    ModelArgument,
)
from octavo.cli.tasks import DataOption, LabelOption, TaskChoice, TaskOption, TextOption
from octavo.errors import OctavoError
from octavo.versions import versions

if TYPE_CHECKING:
    from octavo.fidelity import Fidelity
    from octavo.graph import Encoder
    from octavo.runtime.file_model import FileModel
    from octavo.tasks import Evaluation

_HELP = """Measure a model: how faithful it is to another one, or its score on a task.

**Fidelity** needs no labels: both models read the same texts, and what they answer is compared. For embedding
models that is the cosine of the two embeddings of each text, the share of nearest neighbours that stay the
same and the rank correlation of cosines; for classifiers the agreement of their predictions and the KL
divergence; for taggers the entities that both name, for readers the overlap of their answers, for rerankers
the rank correlation of their scores; for all the signal to quantization noise ratio (SQNR) of each output.
Taggers are compared on the tokens of the texts: what they say of special tokens ([CLS]) nobody reads.

A **task** of your own is a file with labels: a table (`--data reviews.csv --text review --label stars`, two
`--text` for pairs), a CoNLL file, SQuAD's JSON, or a folder in BEIR's layout to search in. `--task` names the
kind where the file does not tell, or a task file (YAML) that says it all once. With `--against`, both models
are scored, and how far their answers agree is said in the head's language: classes, entities, answers, the
first ten documents.

Other tasks are those of GLUE (`glue/rte`, for a model fine-tuned on it) and `similarity/stsb` (for embedding
models). `--data` is then a folder in GLUE's layout; without it the task comes from the hub, which needs the
extra `hub`.

Examples:

* `octavo evaluate minilm-w8a8 --against demo:minilm --texts texts.txt`
* `octavo evaluate demo:minilm --task similarity/stsb --data GLUE_DIR`
* `octavo evaluate minilm-int8.onnx --against demo:minilm --texts texts.txt`
* `octavo evaluate my-classifier --data reviews.csv --text review --label stars`
* `octavo evaluate minilm-int8.onnx --against demo:minilm --data beir-folder --vectors float,int8,binary`
* `octavo evaluate my-tagger --task ner.yaml --json`
"""


_AGREEMENT = {
    "agreement": "same answer",
    "entities": "F1 of entities",
    "spans": "overlap of answers",
    "rank_correlation": "rank correlation",
    "top_ten": "same ten documents",
}
"""Measures of agreement in words; others are called what they are."""


@command("evaluate", _HELP)
def _evaluate(
    console: Console,
    model: ModelArgument,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="MODEL", help="The reference, usually the float model.", show_default=False
        ),
    ] = None,
    texts: Annotated[
        Path | None,
        typer.Option(
            "--texts", metavar="FILE", help=f"Texts to compare on: {TEXT_FILE}.", show_default=False
        ),
    ] = None,
    task: TaskOption = None,
    data: DataOption = None,
    text: TextOption = None,
    label: LabelOption = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            "--vectors",
            metavar="A,B",
            help="How an index stores vectors, for retrieval: float, int8, binary.",
            show_default="float",
        ),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            metavar="NAME",
            help="Split of the task; of one file, dev is what a training on it held out.",
            show_default="dev, dev_matched for MNLI, all of a file",
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length",
            min=2,
            help="At most this many tokens of a task's text.",
            show_default="as in the model's training",
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", min=1, help="Texts per batch; does not change the result.")
    ] = 32,
    device: DeviceOption = Device.auto,
    head: HeadOption = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer",
            metavar="MODEL",
            help="The model or folder whose tokenizer an exported file takes.",
            show_default="beside the file, or the model of --against",
        ),
    ] = None,
) -> None:
    opening = partial(_open, console, head=head, device=device, tokenizer=tokenizer or against)
    more = () if vectors is None else (("vectors", tuple(vectors.replace(" ", "").split(","))),)
    choice = TaskChoice(task=task, data=data, text=text or (), label=label or (), split=split, more=more)
    _check(against, texts, choice, {"--split": split, "--max-length": max_length, "--vectors": vectors})
    if choice:
        result = _score(console, opening, model, against, choice, max_length, batch_size)
    else:
        assert against is not None and texts is not None  # _check saw to it
        result = _compare(console, opening, model, against, texts, batch_size)
    console.show(_fidelity_table(result, result.fidelity) if result.fidelity else _score_table(result))
    console.result({**result.to_dict(), "versions": versions()})


def _check(
    against: str | None, texts: Path | None, choice: TaskChoice, of_task: dict[str, object | None]
) -> None:
    """Refuse options that do not go together, before any model is loaded."""
    if choice and texts is not None:
        raise OctavoError("A task brings its own texts; give either a task, or --against and --texts.")
    choice.check()
    if choice and choice.is_glue and against is not None:
        raise OctavoError(f"{choice.task} is scored for one model; leave out --against.")
    if not choice and any(value is not None for value in of_task.values()):
        names = ", ".join(of_task)
        raise OctavoError(f"{names} belong to a task; name it as well: --task glue/rte, or --data FILE.")
    if not choice and (against is None or texts is None):
        raise OctavoError(
            "Give --against MODEL and --texts FILE for fidelity, or a task: --task glue/rte, or --data FILE "
            "--text COLUMN --label COLUMN."
        )


def _open(
    console: Console, model: str, *, head: Head | None, device: Device, tokenizer: str | None
) -> Encoder | FileModel:
    """Load a model, or open an exported file with the tokenizer beside it or the one named."""
    from octavo.runtime.backends import BACKENDS

    backend = next((b for b in BACKENDS.values() if Path(model).suffix in b.endings), None)
    if backend is None:
        return console.load(model, head=head, device=device)
    from octavo.runtime.file_model import find_tokenizer_folder, open_model

    beside = find_tokenizer_folder(Path(model))
    return open_model(model, tokenizer if beside is None else beside, backend=backend.name)


def _compare(
    console: Console,
    opening: Callable[[str], Encoder | FileModel],
    model: str,
    against: str,
    texts: Path,
    batch_size: int,
) -> Evaluation:
    from octavo.tasks import compare

    read = console.read_texts(texts)
    first, second = opening(model), opening(against)
    with console.progress("Comparing") as progress:
        return compare(first, second, read, batch_size=batch_size, progress=progress)


def _score(
    console: Console,
    opening: Callable[[str], Encoder | FileModel],
    model: str,
    against: str | None,
    choice: TaskChoice,
    max_length: int | None,
    batch_size: int,
) -> Evaluation:
    from octavo.tasks import score_task

    first = opening(model)
    task = choice.find(first.head)
    with console.progress(task if isinstance(task, str) else task.title) as progress:
        return score_task(
            first,
            task,
            data=choice.data if choice.is_glue else None,
            split=choice.split,
            max_length=max_length,
            batch_size=batch_size,
            progress=progress,
            against=None if against is None else opening(against),
        )


def _fidelity_table(result: Evaluation, fidelity: Fidelity) -> Table:
    """Return one row per measure that is defined for the models."""
    table = _two_columns(f"{result.model} against {result.against}, {result.examples} texts")
    if fidelity.cosine is not None:
        table.add_row("cosine, mean", f"{fidelity.cosine.mean:.4f}")
        table.add_row("cosine, worst", f"{fidelity.cosine.worst:.4f}")
    neighbours = fidelity.neighbours
    if neighbours is not None and neighbours.kept is not None:
        table.add_row(f"{neighbours.of} nearest neighbours kept", f"{neighbours.kept:.1%}")
    for title, value in (
        ("F1 of entities, both models", fidelity.entities),
        ("overlap of answers", fidelity.spans),
    ):
        if value is not None:
            table.add_row(title, f"{value:.1%}")
    if fidelity.rank_correlation is not None:
        table.add_row("rank correlation", f"{fidelity.rank_correlation:.4f}")
    for title, values, form in (
        ("same prediction", fidelity.agreement, ".1%"),
        ("KL divergence (nats)", fidelity.kl, ".4f"),
        ("correlation", fidelity.correlation, ".4f"),
        ("SQNR (dB)", fidelity.sqnr, ".1f"),
    ):
        for output, value in values.items():
            table.add_row(f"{title}, {output}", format(value, form))
    return table


def _score_table(result: Evaluation) -> Table:
    from octavo.tasks import TASKS

    where = result.split if result.source is None else f"{result.split} ({result.source})"
    table = _two_columns(f"{result.model} on {result.task}, {where}")
    if result.against is not None:
        table.show_header = True
        table.columns[1].header = result.model
        table.add_column(result.against, justify="right")
    for name, value in result.metrics.items():
        reference = [f"{result.reference[name]:.2f}"] if name in result.reference else []
        table.add_row(name, f"{value:.2f}", *reference)
    for name, value in result.agreement.items():
        vectors, _, measure = name.rpartition("/")
        title = _AGREEMENT.get(measure, measure)
        table.add_row(f"{title}, {vectors or 'both models'}", f"{value:.2f}")
    if result.task in TASKS and len(result.metrics) > 1:
        table.add_row("score", f"{result.score:.2f}")
    of = f" of {result.full}" if result.partial else ""
    skipped = f", {result.skipped} broken lines left out" if result.skipped else ""
    table.add_row("examples", f"{result.examples}{of}{skipped}")
    return table


def _two_columns(title: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    return table
