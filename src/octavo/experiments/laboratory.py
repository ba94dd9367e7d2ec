"""The laboratory: a model, its data and a device, in which the cells of a grid are run one after another."""

from __future__ import annotations

import gc
import os
import platform
import shutil
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from octavo.errors import OctavoError
from octavo.experiments.cell import Cell
from octavo.experiments.store import Store
from octavo.experiments.task_data import TaskData, read_task
from octavo.files import write_file
from octavo.graph import Encoder, QuantizedEncoder
from octavo.methods import load
from octavo.methods.pipeline import quantize
from octavo.methods.training.finetuning import finetune, own_copy
from octavo.methods.training.head import new_head
from octavo.methods.training.loop import Running, TrainingResult
from octavo.methods.training.quantized import qat
from octavo.tasks.glue import glue_task
from octavo.versions import versions


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a grid runs: model, data (None: the hub), results folder, device; and the tables asked for."""

    model: str
    data: str | None
    output: str
    device: str = "auto"
    tables: tuple[str, ...] = ("overview",)

    @property
    def work(self) -> Path:
        """The folder of checkpoints, which are no results."""
        return Path(self.output) / ".work"

    def checkpoint(self, cell: Cell) -> Path:
        """The fine-tuned parameters of a cell."""
        return self.work / "float" / cell.path.replace("/", "-").replace(".json", ".safetensors")


class Laboratory:
    """Runs cells; encoders and data are loaded once and kept."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.store = Store(Path(place.output))
        self._encoders: dict[int, Encoder] = {}
        self._tasks: dict[str, TaskData] = {}

    def encoder(self, task: str) -> Encoder:
        """Return the pre-trained encoder with a head that fits a task."""
        described = glue_task(f"glue/{task}")
        if described.outputs not in self._encoders:
            self._encoders[described.outputs] = load(
                self.place.model,
                head="sequence-classification",
                labels=described.outputs,
                device=self.place.device,
            )
        return self._encoders[described.outputs]

    def task(self, task: str) -> TaskData:
        """Return the data of a task, tokenized."""
        if task not in self._tasks:
            self._tasks[task] = read_task(self.encoder(task), f"glue/{task}", self.place.data)
        return self._tasks[task]

    def run(self, cell: Cell, start: Cell | None) -> float:
        """Run a cell and write its result; `start` is the fine-tuned cell that quantization starts from."""
        began = time.monotonic()
        scratch = self.place.work / "running" / cell.path.replace("/", "-")
        model, training = self._make(cell, start, Running(checkpoint=scratch))
        metrics = self.task(cell.task).metrics(model)
        score = sum(metrics.values()) / len(metrics)
        if cell.method == "finetune":
            self._keep(cell, model)
        self.store.put(
            cell,
            {
                "score": score,
                "metrics": metrics,
                "start": None if start is None else start.path,
                "training": None if training is None else training.to_dict(),
                "model": self.place.model,
                "data": self.task(cell.task).about,
                "command": self._command(cell),
                "seconds": time.monotonic() - began,
                "versions": versions(),
                "hardware": self.hardware,
            },
        )
        shutil.rmtree(scratch, ignore_errors=True)
        del model
        _free()
        return score

    def _make(
        self, cell: Cell, start: Cell | None, running: Running
    ) -> tuple[Encoder, TrainingResult | None]:
        data, encoder = self.task(cell.task), own_copy(self.encoder(cell.task))
        if cell.method == "finetune":
            assert cell.hyper is not None
            new_head(encoder, cell.seed)
            score = lambda: data.score(encoder)  # noqa: E731
            return encoder, finetune(
                encoder, data.train, cell.hyper, seed=cell.seed, score=score, running=running
            )
        assert start is not None and cell.recipe is not None and cell.calibration is not None
        self._start_from(encoder, start)
        size, batches = cell.calibration
        texts = data.sample(size * batches, cell.seed)
        if cell.method == "quantize":
            return quantize(
                encoder, cell.recipe, texts, batch_size=size, seed=cell.seed, max_length=128
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
            score=data.score,
            running=running,
        )
        return model, result

    def _keep(self, cell: Cell, encoder: Encoder) -> None:
        parameters = {
            name: value.detach().cpu().contiguous() for name, value in encoder.graph.named_parameters()
        }
        with write_file(self.place.checkpoint(cell), force=True) as draft:
            save_file(parameters, draft)

    def _start_from(self, encoder: Encoder, start: Cell) -> None:
        file = self.place.checkpoint(start)
        if not file.is_file():
            raise OctavoError(f"{file} is gone; run the grid again, it will be made anew")
        trained = load_file(file)
        with torch.no_grad():
            for name, parameter in encoder.graph.named_parameters():
                parameter.copy_(trained[name])

    def _command(self, cell: Cell) -> str:
        return (
            f"octavo reproduce {' '.join(self.place.tables)} --row {cell.row} --task {cell.task} "
            f"--only-seed {cell.seed} --model {self.place.model} --data GLUE_DIR -o DIR"
        )

    @cached_property
    def hardware(self) -> dict[str, Any]:
        """What the results were computed on."""
        found: dict[str, Any] = {"cpu": platform.machine(), "cores": os.cpu_count()}
        if torch.cuda.is_available() and self.place.device != "cpu":
            found["gpu"] = torch.cuda.get_device_name()
        return found


def _free() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
