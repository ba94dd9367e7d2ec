"""Running cells: one model and its data on one device, kept from cell to cell."""

from __future__ import annotations

import gc
import math
import os
import platform
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from octavo.errors import OctavoError
from octavo.experiments.cell import Cell
from octavo.experiments.results import Results
from octavo.files import write_file
from octavo.graph import Encoder, QuantizedEncoder
from octavo.methods.pipeline import quantize
from octavo.methods.training.checkpoint import discard_checkpoint
from octavo.methods.training.finetuning import finetune, own_copy
from octavo.methods.training.head import load_with_head, new_head
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
    """

    model: str
    data: str | None
    output: str
    device: str = "auto"
    settings: str = "paper"
    start_seed: int | None = None
    tables: tuple[str, ...] = ("overview",)

    def results(self) -> Results:
        """Return the results folder, which may be still to make; one of another model is refused."""
        about = {"version": __version__, "model": self.model, "settings": self.settings}
        return Results(Path(self.output), about)

    @property
    def work(self) -> Path:
        """The folder of checkpoints, which are no results."""
        return Path(self.output) / ".work"

    def parameters_file(self, cell: Cell) -> Path:
        """Return the file of the fine-tuned parameters of a cell."""
        return self.work / "float" / cell.path.replace("/", "-").replace(".json", ".safetensors")


class CellRunner:
    """Runs cells; encoders and data are loaded once and kept."""

    def __init__(self, configuration: RunConfiguration) -> None:
        self.configuration = configuration
        self.results = configuration.results()
        self._encoders: dict[int, Encoder] = {}
        self._tasks: dict[tuple[str, int], TaskData] = {}

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
            stop_at: time of `time.monotonic()` at which the cell gives up with `TimeOverError`; trained so
                far, it goes on from there next time.
        """
        began = time.monotonic()
        checkpoint = self.configuration.work / "running" / cell.path.replace("/", "-")
        data = self.task(cell.task, _max_length(cell, start))
        check = _stop_at(stop_at)
        model, training = self._make(cell, start, data, RunOptions(checkpoint=checkpoint, stop_at=stop_at))
        metrics = data.metrics(model, check)
        score = sum(metrics.values()) / len(metrics)
        if cell.method == "finetune":
            self._keep(cell, model)
        self.results.put(
            cell,
            {
                "score": score,
                "metrics": metrics,
                "start": None if start is None else start.path,
                "training": None if training is None else training.to_dict(),
                "model": self.configuration.model,
                "data": data.about,
                "command": self._command(cell, start),
                "seconds": time.monotonic() - began,
                "versions": versions(),
                "hardware": self.hardware,
            },
        )
        discard_checkpoint(checkpoint)
        del model
        _free()
        return score

    def _make(
        self, cell: Cell, start: Cell | None, data: TaskData, options: RunOptions
    ) -> tuple[Encoder, TrainingResult | None]:
        encoder, check = own_copy(self.encoder(cell.task)), _stop_at(options.stop_at)
        if cell.method == "finetune":
            assert cell.hyper is not None
            new_head(encoder, cell.seed)
            score = lambda: data.score(encoder, check)  # noqa: E731
            return encoder, finetune(
                encoder, data.train, cell.hyper, seed=cell.seed, score=score, options=options
            )
        assert start is not None and cell.recipe is not None and cell.calibration is not None
        self._start_from(encoder, start)
        size, batches = cell.calibration
        texts = data.sample(size * batches, cell.seed)
        if cell.method == "quantize":
            return quantize(
                encoder,
                cell.recipe,
                texts,
                batch_size=size,
                seed=cell.seed,
                max_length=_max_length(cell, start),
                progress=check,
            ), None
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
        return model, result

    def _keep(self, cell: Cell, encoder: Encoder) -> None:
        parameters = {
            name: value.detach().cpu().contiguous() for name, value in encoder.graph.named_parameters()
        }
        with write_file(self.configuration.parameters_file(cell), force=True) as draft:
            save_file(parameters, draft)

    def _start_from(self, encoder: Encoder, start: Cell) -> None:
        file = self.configuration.parameters_file(start)
        if not file.is_file():
            raise OctavoError(f"{file} is gone; run the grid again, it will be made anew")
        trained = load_file(file)
        with torch.no_grad():
            for name, parameter in encoder.graph.named_parameters():
                parameter.copy_(trained[name])

    def _command(self, cell: Cell, start: Cell | None) -> str:
        seeds = f"--only-seed {cell.seed}" + ("" if start is None else f" --start-seed {start.seed}")
        return (
            f"octavo reproduce {' '.join(self.configuration.tables)} --row {cell.row} --task {cell.task} "
            f"{seeds} --model {self.configuration.model} --data GLUE_DIR -o DIR"
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


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
