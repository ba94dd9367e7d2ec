"""Reading GLUE's own files: tab-separated, never quoted, most with a header."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from octavo.errors import DataError, OctavoWarning
from octavo.tasks.examples import Examples
from octavo.tasks.glue import GLUE, GlueTask, glue_task
from octavo.tasks.lines import read_lines
from octavo.tasks.texts import Text

_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class _Layout:
    """Where the texts and the label of a file stand, counted in fields from 0."""

    texts: tuple[int, ...]
    label: int
    width: int


def read_glue(task: GlueTask | str, data: str | Path, split: str | None = None) -> Examples:
    """Return one split of a task from a folder that holds GLUE's task folders (CoLA, SST-2, ...).

    split is the name of the file without .tsv; by default dev, and dev_matched for MNLI.
    """
    task = glue_task(task) if isinstance(task, str) else task
    chosen = task.split(split)
    path = _find(task, Path(data), chosen.name)
    lines = read_lines(path)
    layout = _layout(task, lines, path)
    start = 0 if task.fields else 1
    rows, broken = _rows(task, lines, start, layout, path)
    if not rows:
        raise DataError(f"{path} holds no examples; {task.name} needs at least one line of data.")
    return Examples(
        task=task.name,
        split=chosen.name,
        texts=tuple(text for text, _ in rows),
        labels=label_array(task, [label for _, label in rows]),
        full=chosen.examples,
        source=str(path),
        skipped=broken,
    )


def glue_samples(data: str | Path, count: int) -> dict[str, tuple[Text, ...]]:
    """Return at most `count` texts of every task whose development set is in a folder, by task folder."""
    tasks = [t for t in GLUE.values() if (Path(data) / t.folder / f"{t.default_split}.tsv").is_file()]
    if not tasks:
        folders = ", ".join(task.folder for task in GLUE.values())
        raise DataError(
            f"{data} holds none of GLUE's task folders ({folders}); give the folder that holds them"
        )
    return {task.folder: read_glue(task, data).texts[:count] for task in tasks}


def label_array(task: GlueTask, labels: list[float]) -> NDArray[Any]:
    """Return labels (n,) as float64 scores for regression, else as int64 classes."""
    return np.asarray(labels, dtype=np.float64 if task.regression else np.int64)


def _find(task: GlueTask, data: Path, split: str) -> Path:
    if not data.is_dir():
        raise DataError(f"{data} is not a folder; give the folder that holds {task.folder}/{split}.tsv.")
    path = data / task.folder / f"{split}.tsv"
    if path.is_file():
        return path
    looked = path.parent if path.parent.is_dir() else data
    names = sorted(entry.name for entry in looked.iterdir())
    there = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    raise DataError(
        f"{task.name} needs {path}, which does not exist; {looked} holds {there or 'nothing'}. "
        f"Give the folder that holds {task.folder}/{split}.tsv."
    )


def _layout(task: GlueTask, lines: list[str], path: Path) -> _Layout:
    if task.fields:
        header: list[str] = []
        width = task.fields
    else:
        header = lines[0].split("\t") if lines else []
        width = len(header)
    return _Layout(
        texts=tuple(_position(column, header, path) for column in task.columns),
        label=_position(task.label, header, path),
        width=width,
    )


def _position(column: str | int, header: list[str], path: Path) -> int:
    if isinstance(column, int):
        return column
    if column not in header:
        names = ", ".join(repr(name) for name in header) or "nothing"
        raise DataError(f"{path}, line 1: no column {column!r}; the header names {names}.")
    return header.index(column)


def _rows(
    task: GlueTask, lines: list[str], start: int, layout: _Layout, path: Path
) -> tuple[list[tuple[Text, float]], int]:
    """Return (text, label) of every line from start on, and how many broken lines were left out."""
    rows: list[tuple[Text, float]] = []
    broken: list[int] = []
    for number, line in enumerate(lines[start:], start=start + 1):
        fields = line.split("\t")
        if line == "":
            continue
        if len(fields) != layout.width:
            broken.append(number)
            if len(broken) > task.tolerated:
                raise _malformed(path, number, layout.width, fields)
            continue
        rows.append((_text(fields, layout), _label(task, fields[layout.label], f"{path}, line {number}")))
    if broken:
        warnings.warn(_left_out(path, broken), OctavoWarning, stacklevel=3)
    return rows, len(broken)


def _left_out(path: Path, broken: list[int]) -> str:
    shown = ", ".join(map(str, broken[:5])) + (", ..." if len(broken) > 5 else "")
    return f"{path}: {len(broken)} lines cut in two were left out (lines {shown})."


def _malformed(path: Path, number: int, width: int, fields: list[str]) -> DataError:
    begin = "\t".join(fields)[:60]
    return DataError(
        f"{path}, line {number}: expected {width} fields separated by tabs, found {len(fields)} in {begin!r}."
    )


def _text(fields: list[str], layout: _Layout) -> Text:
    texts = [fields[position] for position in layout.texts]
    return texts[0] if len(texts) == 1 else (texts[0], texts[1])


def _label(task: GlueTask, written: str, where: str) -> float:
    if task.regression:
        return _score(task, written, where)
    if written not in task.spellings:
        allowed = ", ".join(task.spellings)
        raise DataError(f"{where}: label {written!r} is outside {task.name}; allowed are {allowed}.")
    return task.spellings.index(written)


def _score(task: GlueTask, written: str, where: str) -> float:
    try:
        score = float(written)
    except ValueError:
        score = float("nan")
    if not 0.0 <= score <= 5.0:
        raise DataError(f"{where}: label {written!r} is outside {task.name}; give a number from 0 to 5.")
    return score
