"""One step of training, run op by op or replayed as a CUDA graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from octavo.methods.training.examples import Examples

if TYPE_CHECKING:
    from accelerate import Accelerator

_EAGER_STEPS = 2  # of every shape, before it is recorded: kernels are built and tuned, memory is found


class Step:
    """Forward, backward and update of one batch.

    Arguments:
        module: takes the examples' inputs in order and returns the tuple of outputs that their loss reads.
        clipped: the parameters whose gradient norm is limited to `clip`; learned ranges are not among them.
        accelerator: brings mixed precision and several processes; it has prepared `module` and `optimizer`.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        data: Examples,
        clipped: Sequence[Tensor],
        clip: float,
        accelerator: Accelerator | None = None,
    ) -> None:
        self.module, self.optimizer, self.data = module, optimizer, data
        self.clipped, self.clip = list(clipped), clip
        self.accelerator = accelerator

    def set_rate(self, rate: float) -> None:
        """Set the learning rate to a share of its maximum."""
        for group in self.optimizer.param_groups:
            value = rate * group["maximum"]
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(value)  # in place: a recorded step reads this memory
            else:
                group["lr"] = value

    def __call__(self, rows: Tensor, width: int, weight: float = 1.0) -> Tensor:
        """Train on some rows, cut to `width` tokens; return the loss times `weight`."""
        self.optimizer.zero_grad(set_to_none=True)
        inputs, targets = self.data.batch(rows, width)
        if self.accelerator is None:
            loss = self.data.loss(self.module(*inputs), inputs, targets) * weight
            loss.backward()
        else:
            with self.accelerator.autocast():
                loss = self.data.loss(self.module(*inputs), inputs, targets) * weight
            self.accelerator.backward(loss)
            # in fp16 gradients are scaled: unscaled, else all of them would be cut
            self.accelerator.unscale_gradients(self.optimizer)
        nn.utils.clip_grad_norm_(self.clipped, self.clip, foreach=True)
        self.optimizer.step()
        return loss.detach()


class RecordedStep(Step):
    """A step on one CUDA device, recorded once for each shape and then replayed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._seen: Counter[tuple[int, int]] = Counter()
        self._recorded: dict[tuple[int, int], tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream()

    def __call__(self, rows: Tensor, width: int, weight: float = 1.0) -> Tensor:
        shape = (len(rows), width)
        if shape not in self._recorded:
            self._seen[shape] += 1
            if self._seen[shape] <= _EAGER_STEPS:
                return self._aside(lambda: super(RecordedStep, self).__call__(rows, width, weight))
            self._record(rows, width)
        graph, static_rows, loss = self._recorded[shape]
        static_rows.copy_(rows)
        graph.replay()
        return loss.clone()

    def _aside(self, work: Callable[[], Tensor]) -> Tensor:
        """Run on another stream, which recording demands of what came before it."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            result = work()
        torch.cuda.current_stream().wait_stream(self._stream)
        return result

    def _record(self, rows: Tensor, width: int) -> None:
        static_rows, graph = rows.clone(), torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        # thread-local: other threads, such as a data loader's, may use the device meanwhile
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            loss = super().__call__(static_rows, width)
        self._recorded[(len(rows), width)] = graph, static_rows, loss


@contextmanager
def repeatable() -> Iterator[None]:
    """Let gradients on a GPU be summed in one order, so that training repeats to the bit.

    Else torch adds up what thousands of look-ups of a few rows give, as of relative positions, in any order.
    Operations that know one way only warn and go on.
    """
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    settings: Any = torch.utils.deterministic
    filled = settings.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    settings.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        settings.fill_uninitialized_memory = filled
