"""The task that a command is asked for: its options, and what they mean together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from octavo.errors import OctavoError

if TYPE_CHECKING:
    from octavo.graph import Encoder
    from octavo.tasks import Task

# names are spelled out: where the metavar is the name in capitals, typer 0.27 would take it for the name
TaskOption = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="TASK",
        help="glue/cola ... glue/wnli, similarity/stsb, a task file (.yaml), or the kind of your own data: "
        "classification, multi-label, regression, similarity, token-classification, question-answering, "
        "retrieval, reranking.",
        show_default="the kind that --data looks like",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Your own data: a table (.csv, .tsv, .jsonl, .parquet), CoNLL, SQuAD's JSON, a folder in BEIR's "
        "layout; or GLUE's folder.",
        show_default="the task file's, or GLUE from the hub",
    ),
]
TextOption = Annotated[
    list[str] | None,
    typer.Option("--text", metavar="COLUMN", help="Column of texts; twice for pairs.", show_default=False),
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="COLUMN",
        help="Column of labels; several times for a column of 0 and 1 for each label.",
        show_default=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class TaskChoice:
    """What the options say of a task.

    Arguments:
        training: the data is trained on, and not scored.
        dev: of a training, what is scored.
        split: of one file, the part that a training on it holds out (dev) or sees (train).
    """

    task: str | None = None
    data: Path | None = None
    text: Sequence[str] = ()
    label: Sequence[str] = ()
    dev: Path | None = None
    split: str | None = None
    training: bool = False
    more: tuple[tuple[str, Any], ...] = ()
    """Further fields of the kind, such as how vectors are stored."""

    def __bool__(self) -> bool:
        """Return whether a task was asked for."""
        return self.task is not None or self.data is not None

    @property
    def is_glue(self) -> bool:
        """Whether the task is one of GLUE's, or similarity/stsb."""
        from octavo.tasks import TASKS

        return self.task in TASKS

    @property
    def name(self) -> str:
        """What the task is called: as it was given, or the name of the data."""
        return self.task or (self.data.name if self.data is not None else "")

    def check(self) -> None:
        """Refuse what does not go together, and files that cannot be read, before a model is loaded."""
        if not self:
            if self.text or self.label:
                raise OctavoError("--text and --label name columns of a table; give it as well: --data FILE")
            return
        if self.is_glue:
            self._refuse(f"{self.task} knows its columns")
            return
        chosen = self.find(None)
        if not isinstance(chosen, str):
            chosen.read("train" if self.training else self.split or "dev")

    def check_fits(self, encoder: Encoder) -> None:
        """Refuse a model that the task does not fit, and labels that it does not know, before any work."""
        if not self:
            return
        chosen = self.find(encoder.head)
        if isinstance(chosen, str):
            return  # scoring says it, in GLUE's own words
        chosen.check_model(encoder)
        chosen.check_labels(encoder, chosen.read(self.split or "dev"))

    def find(self, head: str | None) -> str | Task:
        """Return the name of one of GLUE's tasks, or the task of the user's own, for a model with a head."""
        from octavo.tasks import find_task

        if self.is_glue:
            return str(self.task)
        if self.task is not None and self.task.endswith((".yaml", ".yml")):
            self._refuse("the task file names the columns")
            task = cast("Task", find_task(self.task))
            return replace(task, **self._files(), **self._fields(type(task), {}))
        return self._own(head)

    def _files(self) -> dict[str, Any]:
        """Return the files that options name; one is scored as it is, unless a part of it is asked for."""
        if self.data is None:
            return {} if self.dev is None else {"dev": self.dev}
        if self.training:
            return {"train": self.data, **({} if self.dev is None else {"dev": self.dev})}
        return {"dev": self.data} if self.split is None else {"train": self.data, "dev": None}

    def _own(self, head: str | None) -> Task:
        from octavo.tasks import Task, find_task
        from octavo.tasks.guessing import guess_kind

        if self.task is not None:
            found = find_task(self.task)
            assert isinstance(found, Task)  # GLUE's names were dealt with
            kind = type(found)
        else:
            kind = guess_kind(self.data, text=self.text, label=self.label, head=head)
        if self.data is None:
            raise OctavoError(f"{kind.variant_name} needs data; give a file or folder: --data PATH")
        columns = {"text": tuple(self.text), "label": tuple(self.label)}
        values: dict[str, Any] = {name: _one(given) for name, given in columns.items() if given}
        return kind(**self._files(), **self._fields(kind, values))

    def _fields(self, kind: type[Task], values: dict[str, Any]) -> dict[str, Any]:
        """Return the values with those of further options; one that the kind does not read is an error."""
        given = {**values, **dict(self.more)}
        odd = next((name for name in given if name not in kind.__dataclass_fields__), None)
        if odd is not None:
            raise OctavoError(f"{kind.variant_name} does not read --{odd}; leave it out")
        return given

    def _refuse(self, why: str) -> None:
        given = [f"--{name}" for name, value in (("text", self.text), ("label", self.label)) if value]
        if given:
            raise OctavoError(f"{why}; leave out {' and '.join(given)}")


def _one(names: tuple[str, ...]) -> str | tuple[str, ...]:
    return names[0] if len(names) == 1 else names
