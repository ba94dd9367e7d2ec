"""Running cells: one model and its data on one device, kept from cell to cell."""

from __future__ import annotations

import gc
import hashlib
import math
import os
import platform
import shutil
import time
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import torch

from octavo.errors import ModelError, OctavoError, OutputError
from octavo.experiments.cell import Cell
from octavo.experiments.results import Results
from octavo.experiments.starts import Starts
from octavo.graph import Encoder, QuantizedEncoder
from octavo.methods.distillation.distilling import distill
from octavo.methods.distillation.settings import Distillation
from octavo.methods.pipeline import quantize
from octavo.methods.training.finetuning import finetune, own_copy
from octavo.methods.training.head import load_with_head, new_head
from octavo.methods.training.launch import accelerator_for
from octavo.methods.training.loop import RunOptions, TimeOverError, TrainingResult
from octavo.methods.training.quantized import qat
from octavo.progress import Progress
from octavo.tasks.glue import task_by_short_name
from octavo.tasks.task_data import TaskData, read_task
from octavo.versions import __version__, versions


@dataclass(frozen=True, kw_only=True)
class RunConfiguration:
    """What a grid runs with.

    Arguments:
        model, data: the pre-trained model, and the folder of the tasks' files (None: the hub).
        output: the results folder.
        settings, tables: their names, for the results to say.
        start_seed: quantize the model fine-tuned with this seed; None takes the median of all.
        starts: folder of the fine-tuned parameters that quantization starts from, made or continued; None
            keeps them beside the results.
        precision: of training, as accelerate names it: no, bf16 or fp16.
    """

    model: str
    data: str | None
    output: str
    device: str = "auto"
    settings: str = "paper"
    start_seed: int | None = None
    tables: tuple[str, ...] = ("overview",)
    starts: str | None = None
    precision: str = "no"

    @property
    def model_name(self) -> str:
        """The model as results name it: a folder by its last part, since machines keep it in other places."""
        path = Path(self.model)
        return path.resolve().name if path.is_dir() else self.model

    def results(self) -> Results:
        """Return the results folder, which may be still to make; one of another model is refused."""
        return Results(Path(self.output), self._about)

    def fine_tuned(self) -> Starts:
        """Return the folder of fine-tuned parameters; one of another model or other settings is refused."""
        folder = self.work / "starts" if self.starts is None else Path(self.starts)
        return Starts(folder, self._about)

    @property
    def _about(self) -> dict[str, Any]:
        about = {"version": __version__, "model": self.model_name, "settings": self.settings}
        # folders of one name are many: their files tell them apart
        return about | ({"weights": _weights(self.model)} if Path(self.model).is_dir() else {})

    @property
    def work(self) -> Path:
        """The folder of checkpoints, which are no results."""
        return Path(self.output) / ".work"


@cache
def _weights(folder: str) -> str:
    """Return a fingerprint of a model's weight files."""
    digest = hashlib.sha256()
    for file in sorted(
        file for ending in ("safetensors", "bin") for file in Path(folder).glob(f"*.{ending}")
    ):
        with file.open("rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()[:16]


class CellRunner:
    """Runs cells; encoders and data are loaded once and kept."""

    def __init__(self, configuration: RunConfiguration) -> None:
        self.configuration = configuration
        self.results, self.starts = configuration.results(), configuration.fine_tuned()
        self._encoders: dict[int, Encoder] = {}
        self._tasks: dict[tuple[str, int], TaskData] = {}
        self._started: dict[str, tuple[Cell, Encoder, float]] = {}

    def encoder(self, task: str) -> Encoder:
        """Return the pre-trained encoder with a head that fits a task."""
        outputs = task_by_short_name(task).outputs
        if outputs not in self._encoders:
            model, device = self.configuration.model, self.configuration.device
            self._encoders[outputs] = load_with_head(model, outputs, device=device)
        return self._encoders[outputs]

    def task(self, task: str, max_length: int) -> TaskData:
        """Return the data of a task, tokenized."""
        key = task, max_length
        if key not in self._tasks:
            name, data = task_by_short_name(task).name, self.configuration.data
            self._tasks[key] = read_task(self.encoder(task), name, data, max_length)
        return self._tasks[key]

    def run(self, cell: Cell, start: Cell | None, stop_at: float = math.inf) -> float:
        """Run a cell and write its result.

        Arguments:
            start: the fine-tuned cell that quantization starts from.
            stop_at: time of `time.monotonic()` at which the cell gives up with `TimeOverError`; trained or
                rounded so far, it goes on from there next time.
        """
        began = time.monotonic()
        checkpoint = self.configuration.work / "running" / cell.path.replace("/", "-")
        data = self.task(cell.task, _max_length(cell, start))
        options = RunOptions(checkpoint=checkpoint, stop_at=stop_at, accelerator=self._accelerator)
        model, training = self._make(cell, start, data, options)
        metrics = data.metrics(model, _stop_at(stop_at))
        score = sum(metrics.values()) / len(metrics)
        result = {
            "score": score,
            "metrics": metrics,
            "start": None if start is None else start.path,
            # trained anew on another machine, a start of the same seed may score otherwise
            "start_score": None if start is None else self._fine_tuned(start, data)[1],
            "training": training,
            "model": self.configuration.model_name,
            "data": data.about,
            "command": self._command(cell, start),
            "seconds": time.monotonic() - began,
            "versions": versions(),
            "hardware": self.hardware,
        }
        if cell.method == "finetune" and cell not in self.starts:
            self.starts.write(cell, dict(model.graph.named_parameters()), result)
        self.results.put(cell, result)
        shutil.rmtree(checkpoint, ignore_errors=True)
        del model
        free_memory()
        return score

    def _make(
        self, cell: Cell, start: Cell | None, data: TaskData, options: RunOptions
    ) -> tuple[Encoder, dict[str, Any] | None]:
        """Return the model of a cell, and what its training did."""
        check = _stop_at(options.stop_at)
        if cell.method == "finetune":
            assert cell.hyper is not None
            encoder = own_copy(self.encoder(cell.task))
            carried = self._start_from(encoder, cell, data)
            if carried is not None:  # trained elsewhere, and carried here
                return encoder, carried["training"]
            new_head(encoder, cell.seed)
            score = lambda: data.score(encoder, check)  # noqa: E731
            return encoder, self._described(
                finetune(encoder, data.train, cell.hyper, seed=cell.seed, score=score, options=options)
            )
        assert start is not None and cell.recipe is not None and cell.calibration is not None
        work = options.checkpoint
        encoder, _ = self._fine_tuned(start, data)
        size, batches = cell.calibration
        texts = data.sample(size * batches, cell.seed)
        length = _max_length(cell, start)
        if cell.method == "quantize":
            make = partial(
                quantize,
                encoder,
                cell.recipe,
                texts,
                batch_size=size,
                seed=cell.seed,
                max_length=length,
                work=work,
                progress=check,
            )
            try:
                return make(), None
            except OutputError:  # an attempt on, say, more threads left weights of other numbers
                assert work is not None
                shutil.rmtree(work, ignore_errors=True)
                return make(), None
        if cell.method == "distill":
            settings = Distillation(max_length=length)
            student, learned = distill(
                encoder, cell.recipe, texts, settings, seed=cell.seed, work=work, options=options
            )
            return student, learned.to_dict()
        assert cell.hyper is not None
        model: QuantizedEncoder
        model, result = qat(
            encoder,
            cell.recipe,
            data.train,
            cell.hyper,
            calibration=texts,
            batch_size=size,
            seed=cell.seed,
            score=lambda model: data.score(model, check),
            options=options,
        )
        return model, self._described(result)

    def _fine_tuned(self, start: Cell, data: TaskData) -> tuple[Encoder, float]:
        """Return the encoder that a fine-tuning made and its score.

        One is kept for each task, since its cells share it.
        """
        kept = self._started.get(start.task)
        if kept is None or kept[0] != start:
            encoder = own_copy(self.encoder(start.task))
            result = self._start_from(encoder, start, data)
            if result is None:
                raise OctavoError(f"the start {start.path} is gone; run the grid again, it will be made anew")
            kept = self._started[start.task] = start, encoder, float(result["score"])
        return kept[1:]

    def _start_from(self, encoder: Encoder, start: Cell, data: TaskData) -> dict[str, Any] | None:
        """Give an encoder the parameters of a fine-tuning; return its result, None where there is none."""
        kept = self.starts.read(start, data.about)
        if kept is None:
            return None
        trained, result = kept
        parameters = dict(encoder.graph.named_parameters())
        if {name: value.shape for name, value in parameters.items()} != {
            name: value.shape for name, value in trained.items()
        }:
            raise ModelError(
                f"{self.starts.folder}: the start {start.path} has other parameters than the model"
            )
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(trained[name])
        return result

    def _described(self, result: TrainingResult) -> dict[str, Any]:
        return {**result.to_dict(), "precision": self.configuration.precision}

    @cached_property
    def _accelerator(self) -> Any:
        cpu = self.configuration.device == "cpu"
        return accelerator_for(self.configuration.precision, None, self.configuration.work, cpu)

    def _command(self, cell: Cell, start: Cell | None) -> str:
        seeds = f"--only-seed {cell.seed}" + ("" if start is None else f" --start-seed {start.seed}")
        return (
            f"octavo reproduce {' '.join(self.configuration.tables)} --row {cell.row} --task {cell.task} "
            f"{seeds} --model {self.configuration.model_name} --data GLUE_DIR -o DIR"
            + (
                ""
                if self.configuration.precision == "no"
                else f" --mixed-precision {self.configuration.precision}"
            )
        )

    @cached_property
    def hardware(self) -> dict[str, Any]:
        """What the results were computed on."""
        described: dict[str, Any] = {"cpu": platform.machine(), "cores": os.cpu_count()}
        if torch.cuda.is_available() and self.configuration.device != "cpu":
            described["gpu"] = torch.cuda.get_device_name()
        return described


def _max_length(cell: Cell, start: Cell | None) -> int:
    """Return the most tokens of a cell's texts: its own training's, or that of the model it starts from."""
    hyper = cell.hyper or (None if start is None else start.hyper)
    assert hyper is not None  # a cell trains, or starts from one that did
    return hyper.max_length


def _stop_at(stop_at: float) -> Progress:
    """Return a progress that stops work which tells its progress once the time is over."""

    def check(done: int, total: int) -> None:
        if time.monotonic() >= stop_at:
            raise TimeOverError("the time was over; run it again to go on")

    return check


def free_memory() -> None:
    """Give back what is no longer needed, to the processes that share a GPU too."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
