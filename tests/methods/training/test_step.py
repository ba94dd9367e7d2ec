from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from octavo.graph import Encoder
from octavo.methods.training.finetuning import finetune, own_copy
from octavo.methods.training.hyperparameters import Hyperparameters
from octavo.methods.training.labelled import Labelled
from octavo.methods.training.loop import RunOptions

HYPER = Hyperparameters(
    learning_rate=1e-3, batch_size=16, epochs=1, clip=1e3, hidden_dropout=0.0, attention_dropout=0.0
)


class ScaledOptimizer:
    """As accelerate's: the scaler takes the steps."""

    def __init__(self, optimizer: torch.optim.Optimizer, scaler: Any) -> None:
        self.optimizer, self.scaler = optimizer, scaler
        self.param_groups, self.zero_grad = optimizer.param_groups, optimizer.zero_grad

    def step(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Scaling:
    """Stands for accelerate's `Accelerator(mixed_precision="fp16")`: the loss is scaled, the rest float."""

    process_index, num_processes = 0, 1

    def __init__(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)

    def prepare_model(self, module: Any) -> Any:
        return module

    def prepare_optimizer(self, optimizer: torch.optim.Optimizer, device_placement: bool) -> ScaledOptimizer:
        return ScaledOptimizer(optimizer, self.scaler)

    def autocast(self) -> Any:
        return nullcontext()

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()

    def unscale_gradients(self, optimizer: ScaledOptimizer) -> None:
        self.scaler.unscale_(optimizer.optimizer)


def test_scaled_gradients_are_unscaled_before_they_are_cut(
    tiny_classifier: Encoder, tiny_data: Labelled
) -> None:
    plain, scaled = own_copy(tiny_classifier), own_copy(tiny_classifier)
    finetune(plain, tiny_data, HYPER)
    accelerator: Any = Scaling()
    finetune(scaled, tiny_data, HYPER, options=RunOptions(accelerator=accelerator))
    for (name, first), second in zip(plain.graph.named_parameters(), scaled.graph.parameters(), strict=True):
        assert torch.allclose(first, second, atol=1e-6), name
        # of the last step: with Adam, which divides by their size, parameters alone would hardly tell
        assert first.grad is not None and second.grad is not None
        assert torch.allclose(first.grad, second.grad, rtol=1e-3, atol=1e-6), name
