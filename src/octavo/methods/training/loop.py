"""The training loop: seeded step by step, so that a run that was cut continues to the same result.

Nothing random outlives a step: the order of an epoch depends on (seed, epoch), dropout on (seed, step). A
checkpoint therefore needs only parameters, moments and the count of steps, and may be written at any moment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from octavo.errors import ModelError, OctavoError
from octavo.ledger import fingerprint
from octavo.methods.training.checkpoint import Checkpoint
from octavo.methods.training.examples import Examples
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.launch import restore_precision
from octavo.methods.training.step import RecordedStep, Step, repeatable
from octavo.numerics.kernels import fast_matmul
from octavo.progress import Progress, silent

if TYPE_CHECKING:
    from accelerate import Accelerator

Scorer = Callable[[], float]
Log = Callable[[int, dict[str, float]], None]

_EPOCH_SEEDS, _STEP_SEEDS = 1_000_003, 7_919


class TimeOverError(OctavoError):
    """Raised where a training had to stop before it was finished; its checkpoint is written."""


@dataclass(kw_only=True)
class TrainingResult:
    """What a training did: loss and score of every epoch, the epoch that was kept, the time it took.

    The score of the start is there where the start could be kept, as epoch 0.
    """

    steps: int
    losses: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    kept_epoch: int = 0
    seconds: float = 0.0
    resumed_at: int = 0
    start_score: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How a training is run: speed and safety, not what is learned.

    Arguments:
        checkpoint: folder of the checkpoint to continue from and to write; None writes none.
        every: seconds between two checkpoints.
        stop_at: time of `time.monotonic()` after which no further step is taken; `TimeOverError` is raised.
        progress: called with (steps done, steps in all).
        log: called with (step, values) after every epoch.
        accelerator: for several processes or mixed precision.
        record: replay CUDA graphs where a single GPU allows it.
        compile: run the module through torch.compile, which takes minutes first and draws other dropout.
    """

    checkpoint: Path | None = None
    every: float = 60.0
    stop_at: float = math.inf
    progress: Progress = silent
    log: Log | None = None
    accelerator: Accelerator | None = None
    record: bool = True
    compile: bool = False


def train(
    module: nn.Module,
    data: Examples,
    hyper: Hyperparameters,
    *,
    seed: int = 0,
    ranges: Sequence[Tensor] = (),
    score: Scorer | None = None,
    options: RunOptions | None = None,
    start: Mapping[str, Any] | None = None,
    keep_start: bool = False,
) -> TrainingResult:
    """Train a module that takes the examples' inputs and returns the outputs that their loss reads.

    Arguments:
        ranges: learned ranges among the module's parameters, which have a learning rate of their own.
        score: asked after every epoch, in evaluation mode; the parameters of the best epoch are kept if
            `hyper` says so.
        start: what the training starts from, as plain data, by which a checkpoint is known; by default the
            module's parameters.
        keep_start: the parameters that training starts from are scored too, and kept if no epoch is better.
    """
    training = _Training(module, data, hyper, seed, ranges, score, options or RunOptions(), start)
    return training.run(keep_start)


class _Training:
    def __init__(
        self,
        module: nn.Module,
        data: Examples,
        hyper: Hyperparameters,
        seed: int,
        ranges: Sequence[Tensor],
        score: Scorer | None,
        options: RunOptions,
        start: Mapping[str, Any] | None,
    ) -> None:
        self.module, self.data, self.hyper, self.seed = module, data, hyper, seed
        self.score, self.options = score, options
        accelerator = options.accelerator
        self.rank: int = accelerator.process_index if accelerator is not None else 0
        self.world: int = accelerator.num_processes if accelerator is not None else 1
        self.device = data.device
        self.per_epoch = math.ceil(len(data) / hyper.batch_size)
        self.steps = self.per_epoch * hyper.epochs
        self.best: dict[str, Tensor] = {}
        self._saved = time.monotonic()
        self.optimizer = self._optimizer(ranges)
        self.checkpoint = self._checkpoint(start)
        self.step = self._step(ranges)

    # -- set-up ----------------------------------------------------------------------------------------------

    def _optimizer(self, ranges: Sequence[Tensor]) -> torch.optim.Optimizer:
        apart = {id(parameter) for parameter in ranges}
        trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        network = [parameter for parameter in trained if id(parameter) not in apart]
        groups = [(network, self.hyper.learning_rate)]
        if apart:
            learned = [parameter for parameter in trained if id(parameter) in apart]
            groups.append((learned, self.hyper.range_learning_rate or self.hyper.learning_rate))
        on_gpu = self.device.type == "cuda"
        described: list[dict[str, Any]] = [
            {
                "params": parameters,
                "maximum": rate,
                "lr": torch.tensor(rate, device=self.device) if on_gpu else rate,
            }
            for parameters, rate in groups
            if parameters
        ]
        return torch.optim.Adam(described, fused=True, capturable=on_gpu)

    def _checkpoint(self, start: Mapping[str, Any] | None) -> Checkpoint | None:
        if self.options.checkpoint is None:
            return None
        if start is None:
            start = {"parameters": fingerprint(dict(self.module.named_parameters()))}
        settings = {"hyperparameters": self.hyper.to_dict(), "seed": self.seed}
        return Checkpoint(self.options.checkpoint, {**start, "data": self.data.about(), **settings})

    def _step(self, ranges: Sequence[Tensor]) -> Step:
        apart = {id(parameter) for parameter in ranges}
        clipped = [p for p in self.module.parameters() if p.requires_grad and id(p) not in apart]
        accelerator = self.options.accelerator
        module: Any = torch.compile(self.module) if self.options.compile else self.module
        optimizer: Any = self.optimizer
        if accelerator is not None:
            module = accelerator.prepare_model(module)
            # in fp16 it skips steps that overflow
            optimizer = accelerator.prepare_optimizer(optimizer, device_placement=False)
        kind = RecordedStep if self._records() else Step
        return kind(module, optimizer, self.data, clipped, self.hyper.clip, accelerator)

    def _records(self) -> bool:
        return self.options.record and self.device.type == "cuda" and self.options.accelerator is None

    # -- the loop --------------------------------------------------------------------------------------------

    def run(self, keep_start: bool = False) -> TrainingResult:
        started = time.monotonic()
        result, done, loss_sum = self._resume()
        if keep_start and result.start_score is None and self.score is not None:
            self.module.eval()
            result.start_score = self.score()
            self.best = self._copy()
        spent = result.seconds
        for epoch in range(len(result.losses), self.hyper.epochs):  # of others the end is still to come
            self.module.train()
            for number, (rows, width, weight) in enumerate(self._batches(epoch)):
                step = epoch * self.per_epoch + number
                if step < done:
                    continue
                loss_sum = loss_sum + self._take(step, rows, width, weight)
                result.seconds = spent + time.monotonic() - started
                if number + 1 < self.per_epoch:
                    self._save_or_stop(result, step + 1, loss_sum)
            self._end_epoch(result, epoch, loss_sum)
            loss_sum = torch.zeros((), device=self.device)
            if epoch + 1 < self.hyper.epochs:
                self._save_or_stop(result, (epoch + 1) * self.per_epoch, loss_sum)
            else:
                self._save(result, self.steps, loss_sum)
        self._restore_best()
        if self.options.accelerator is not None:
            restore_precision(self.module)
        self.module.eval()
        result.seconds = spent + time.monotonic() - started
        return result

    def _save_or_stop(self, result: TrainingResult, done: int, loss_sum: Tensor) -> None:
        """Write a checkpoint where the last one is old, and before the training stops for want of time."""
        over = time.monotonic() >= self.options.stop_at
        if over or time.monotonic() - self._saved > self.options.every:
            self._save(result, done, loss_sum)
            self._saved = time.monotonic()
        if over:
            raise TimeOverError(
                f"the time was over after {done} of {self.steps} steps; run it again to go on"
            )

    def _take(self, step: int, rows: Tensor, width: int, weight: float) -> Tensor:
        self.step.set_rate(self.hyper.rate(step, self.steps))
        torch.manual_seed(self.seed * _STEP_SEEDS + step * self.world + self.rank)
        with ExitStack() as modes:
            if self.device.type == "cuda":
                # only the steps: scores are computed in full precision, as users compute them
                modes.enter_context(fast_matmul())
                modes.enter_context(repeatable())
            try:
                loss = self.step(rows, width, weight)
            except RuntimeError as error:
                if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                    raise
                reason = str(error).strip().partition("\n")[0]
                raise ModelError(f"torch.compile failed ({reason}); train without it") from error
        self.options.progress(step + 1, self.steps)
        return loss

    def _batches(self, epoch: int) -> Iterator[tuple[Tensor, int, float]]:
        """Yield this process's rows on the device, the length they are cut to and the loss's weight."""
        generator = torch.Generator().manual_seed(self.seed * _EPOCH_SEEDS + epoch)
        ordered = self.data.order_by_length if self.hyper.group_by_length else self.data.order
        order = ordered(self.hyper.batch_size, generator)
        moved = order.to(self.device)
        lengths = self.data.lengths[order]
        size = self.hyper.batch_size
        for start in range(0, len(order), size):
            width = self.data.cut(int(lengths[start : start + size].max()))
            whole = moved[start : start + size]
            rows = whole[self.rank :: self.world]
            if not len(rows):  # fewer rows than processes: this one repeats a row that counts for nothing
                yield whole[:1], width, 0.0
                continue
            # gradients are averaged over processes: a process with more rows counts for more
            yield rows, width, len(rows) * self.world / len(whole)

    def _end_epoch(self, result: TrainingResult, epoch: int, loss_sum: Tensor) -> None:
        loss = float(loss_sum) / self.per_epoch
        if not math.isfinite(loss):
            raise ModelError(f"the loss of epoch {epoch + 1} is {loss}; train with a smaller learning rate")
        values = {"loss": loss}
        self.module.eval()
        score = self._scored(result, (epoch + 1) * self.per_epoch, loss_sum)
        result.losses.append(loss)
        if score is not None:
            values["score"] = score
            # of equal scores the later epoch: it has seen more
            before = [*result.scores, *([] if result.start_score is None else [result.start_score])]
            if self.hyper.keep == "best" and score >= max(before, default=-math.inf):
                self.best = self._copy()
                result.kept_epoch = epoch + 1
            result.scores.append(score)
        if not self.best:
            result.kept_epoch = epoch + 1
        if self.options.log is not None and self.rank == 0:
            self.options.log((epoch + 1) * self.per_epoch, values)

    def _scored(self, result: TrainingResult, done: int, loss_sum: Tensor) -> float | None:
        """Return the score after an epoch, None if there is none; out of time, keep the epoch first."""
        try:
            return None if self.score is None else self.score()
        except TimeOverError:
            self._save(result, done, loss_sum)
            raise

    # -- checkpoints -----------------------------------------------------------------------------------------

    def _save(self, result: TrainingResult, done: int, loss_sum: Tensor) -> None:
        if self.checkpoint is None or self.rank != 0:
            return
        state = {"done": done, "loss_sum": float(loss_sum), "result": result.to_dict()}
        if self._scaler is not None:
            state["scaler"] = self._scaler.state_dict()
        self.checkpoint.write(self.module, self.optimizer, self.best, state)

    def _resume(self) -> tuple[TrainingResult, int, Tensor]:
        read = None if self.checkpoint is None else self.checkpoint.read(self.module, self.optimizer)
        if read is None:
            return TrainingResult(steps=self.steps), 0, torch.zeros((), device=self.device)
        state, best = read
        if self._scaler is not None and "scaler" in state:
            self._scaler.load_state_dict(state["scaler"])
        self.best = {name: value.to(self.device) for name, value in best.items()}
        result = TrainingResult(**state["result"])
        result.resumed_at = state["done"]
        return result, state["done"], torch.tensor(state["loss_sum"], device=self.device)

    @property
    def _scaler(self) -> Any:
        """What scales the loss in fp16; None in other precisions."""
        return getattr(self.options.accelerator, "scaler", None)

    def _copy(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.module.state_dict().items()}

    def _restore_best(self) -> None:
        if self.best:
            self.module.load_state_dict(self.best)
